"""The `events.*` methods (chapter 60 §5.17, chapter 61 §11).

They take effect in the order the connection sent them: everything but the durable log's part of
`events.read` happens before the next request is looked at.

Failure: -32602 for channels that may not be published to, quota errors for limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ipc.jsonrpc import RpcError, decode_params, invalid_params, quota
from ipc.methods import (
    METHODS,
    EventsPublishParams,
    EventsPublishResult,
    EventsReadParams,
    EventsSubscribeParams,
    EventsUnsubscribeParams,
    SubscriptionResult,
)
from journal.errors import StoreError
from journal.event_log import LoggedEvents
from supervisor.connection import RouterCall
from supervisor.event_channels import View, view_of
from supervisor.events import USER_PREFIX, EventLimit
from supervisor.submissions import journal_unavailable
from supervisor.value_methods import may_read_journal

if TYPE_CHECKING:
    from supervisor.attachments import Attachment
    from supervisor.kernel import Kernel

EVENT_PAYLOAD_BYTES_MAX: Final = 256 * 1024
_encode_json = msgspec.json.Encoder().encode


def _attached(call: RouterCall) -> Attachment:
    assert call.attachment is not None
    return call.attachment


def _view(kernel: Kernel, attachment: Attachment, channel: str) -> View:
    caller = attachment.caller
    return view_of(
        channel,
        owner=attachment.session.owner,
        session=attachment.session.name,
        principal=attachment.principal,
        sees_all_entries=caller.local_human
        or (
            kernel.policies.approves_everybody(caller.principal)
            and may_read_journal(kernel, attachment)
        ),
        approver=kernel.policies.approves(caller.principal, caller.caps),
    )


def publish(kernel: Kernel, call: RouterCall) -> None:
    params: EventsPublishParams = decode_params(call.params, METHODS["events.publish"].decoder)
    attachment = _attached(call)
    payload = bytes(params.payload)
    if not payload:
        invalid_params("Object missing required field `payload`")
    if not params.channel.startswith(USER_PREFIX):
        invalid_params("only user.* channels may be published to", channel=params.channel)
    if len(payload) > EVENT_PAYLOAD_BYTES_MAX:
        raise quota("event_payload_bytes", EVENT_PAYLOAD_BYTES_MAX, len(payload))
    _charge(kernel, call)
    session = attachment.session
    try:
        event = kernel.bus.publish(
            session.owner,
            params.channel,
            payload,
            session=session.name,
            principal=attachment.principal,
        )
    except EventLimit as limit:
        raise _limit_error(limit) from None
    kernel.events.inject(session, params.channel, payload)
    call.answer(_encode_json(EventsPublishResult(params.channel, event.seq, event.ts)))


def _charge(kernel: Kernel, call: RouterCall) -> None:
    """The publish rate of a connection: a bucket that refills at the allowed rate."""
    rate = kernel.config.quotas.publish_per_s
    if rate and not call.connection.publishing.take(rate, kernel.loop.time()):
        raise quota("quotas.publish_per_s", rate, rate + 1)


def _limit_error(limit: EventLimit) -> RpcError:
    return quota(limit.quota, limit.limit, limit.used)


def subscribe(kernel: Kernel, call: RouterCall) -> None:
    params: EventsSubscribeParams = decode_params(call.params, METHODS["events.subscribe"].decoder)
    view = _view(kernel, _attached(call), params.channel)
    kernel.bus.subscriptions_max = kernel.config.quotas.subscriptions_per_connection
    try:
        kernel.bus.subscribe(call.connection, params.channel, view, params.since)
    except EventLimit as limit:
        raise _limit_error(limit) from None
    call.answer(_encode_json(SubscriptionResult(params.channel, True)))


def unsubscribe(kernel: Kernel, call: RouterCall) -> None:
    params: EventsUnsubscribeParams = decode_params(
        call.params, METHODS["events.unsubscribe"].decoder
    )
    kernel.bus.unsubscribe(call.connection, params.channel)
    call.answer(_encode_json(SubscriptionResult(params.channel, False)))


_read_decoder: Final = METHODS["events.read"].decoder


def read(kernel: Kernel, call: RouterCall) -> None:
    params: EventsReadParams = decode_params(call.params, _read_decoder)
    view = _view(kernel, _attached(call), params.channel)
    reading = kernel.bus.read(params.channel, view, params.since, params.limit)
    if reading.log is None:
        call.answer(reading.answer())
        return

    def loaded(page: LoggedEvents, error: StoreError | None) -> None:
        if error is not None:
            call.fail(journal_unavailable(error))
        else:
            call.answer(reading.answer(page.events))

    kernel.store.read(reading.log, loaded)
