"""Tokens that stop holding while somebody is attached with them (chapter 50 §11.4).

The store is looked at with every request of a token attachment and every `tokens.check_interval_ms`
in between. An attachment whose token was revoked or has expired ends, with its subscriptions; after
a revocation everything the token started is cancelled as well: runs, tasks, terminals.

Failure: a store that cannot be read keeps its last good content; that it is broken is logged once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from ipc.jsonrpc import RpcError
from supervisor.attachments import Attachment
from supervisor.worker_process import Ending

if TYPE_CHECKING:
    from supervisor.connection import Connection
    from supervisor.kernel import Kernel
    from supervisor.sessions import Session

log = structlog.get_logger()

_MS_PER_S: Final = 1000
# However short it is configured.
INTERVAL_S_MIN: Final = 0.05
_encode_json = msgspec.json.Encoder().encode


def require_token(kernel: Kernel, connection: Connection, attachment: Attachment) -> None:
    """Raise RpcError `auth_failed`, and end the attachment, when its token does not hold any
    more."""
    if attachment.token is None or kernel.tokens is None:
        return
    try:
        kernel.tokens.check(attachment.token, kernel.now_ns())
    except RpcError:
        end_attachment(kernel, connection, attachment)
        if connection.attachment is attachment:
            connection.attachment = None
        raise


def end_attachment(kernel: Kernel, connection: Connection, attachment: Attachment) -> None:
    """End an attachment whose token does not hold any more. It stays with its connection, so that
    the next request there is told why."""
    assert attachment.token is not None and kernel.tokens is not None
    if attachment.ended:
        return
    kernel.bus.forget(connection)
    attachment.end()
    revoked = kernel.tokens.revoked(attachment.token)
    log.info(
        "token.ended",
        conn=connection.number,
        principal=attachment.principal,
        token=attachment.token.id,
        reason="revoked" if revoked else "expired",
    )


class TokenWatch:
    # `_revoked` are the ids whose work was cancelled already, `_broken` whether the store was
    # unreadable the last time. Everything runs on the loop's thread.

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._revoked: set[str] = set()
        self._broken = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._kernel.tokens is not None:
            self._revoked = self._kernel.tokens.revoked_ids()
            self._wait()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        kernel = self._kernel
        interval_s = kernel.config.tokens.check_interval_ms / _MS_PER_S
        self._timer = kernel.loop.call_later(max(interval_s, INTERVAL_S_MIN), self._look)

    def _look(self) -> None:
        kernel = self._kernel
        tokens = kernel.tokens
        assert tokens is not None
        tokens.refresh()
        if (tokens.broken is not None) != self._broken:
            self._broken = tokens.broken is not None
            if self._broken:
                log.error("tokens.reload_failed", err=tokens.broken)
        now_ns = kernel.now_ns()
        for connection in list(kernel.connections):
            attachment = connection.attachment
            if attachment is None or attachment.token is None or attachment.ended:
                continue
            try:
                tokens.check(attachment.token, now_ns)
            except RpcError:
                end_attachment(kernel, connection, attachment)
        for token_id in tokens.revoked_ids() - self._revoked:
            self._revoked.add(token_id)
            for session in kernel.sessions:
                cancel_work(session, token_id)
        self._wait()


def cancel_work(session: Session, token_id: str) -> None:
    """Cancel what a token started in a session."""
    for submission in (*session.line, *session.submissions.values()):
        if submission.caller.token == token_id:
            submission.cancel()
    for number, caller in list(session.terminal_callers.items()):
        if caller.token == token_id and session.worker is not None:
            was_alive = session.terminals.pop(number, None)
            session.terminal_callers.pop(number, None)
            if was_alive is None:
                continue
            if was_alive:
                session.kernel.events.terminal(session, number, alive=False)
            session.kernel.events.terminal_closed(session, number)
            params = _encode_json({"pty_id": f"pty:{number}"})
            session.worker.call("pty.close", params, caller, _ignored, pty=number)


def _ignored(_ending: Ending, _fds: list[int]) -> None:
    return None
