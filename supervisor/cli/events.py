"""`shoal events`: follow, publish and list channels (chapter 81, section 7.9).

`tail` reads the backlog, then follows; it reconnects and goes on after the last event it printed.

Failure: RpcError, NotReachable; Ctrl-C ends a tail with 130.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ipc.client import Client, Event, RpcError
from supervisor.cli.call import Call
from supervisor.cli.failure import Exit, Failure
from supervisor.cli.output import Output, local_time

USER_PREFIX = "user."


def tail(call: Call) -> int:
    return follow(call, call.operands[0])


def follow(call: Call, channel: str, *, autostart: bool = True) -> int:
    """Print a channel's backlog as far as it was asked for, then what comes."""
    with call.connect(reconnect=True, autostart=autostart) as client:
        call.attached(client)
        since = call.number("since")
        last = _backlog(call, client, channel, since)
        if call.flag("no_follow"):
            return Exit.SUCCESS
        # Replays what came since the backlog was read, so nothing falls between the two.
        subscription = client.subscribe(channel, last)
        for event in subscription:
            print_event(call.out, event)
        return Exit.SUCCESS


def _backlog(call: Call, client: Client, channel: str, since: int | None) -> int | None:
    """Print the events after `since`, and return the number to go on from."""
    params: dict[str, Any] = {"channel": channel, "since": since, "limit": call.number("limit")}
    if since is None:
        # No backlog was asked for: only the number of the newest event matters.
        params["limit"] = 1
    events = client.call("events.read", params)["events"]
    wanted = since is not None or call.number("limit") is not None
    for event in events if wanted else ():
        print_event(call.out, _event(event))
    if events:
        return int(events[-1]["seq"])
    return since


def _event(fields: Mapping[str, Any]) -> Event:
    return Event(
        fields["channel"], fields["seq"], fields["ts"], fields["payload"], fields.get("session")
    )


def print_event(out: Output, event: Event) -> None:
    gap = gap_of(event)
    if gap is not None:
        out.note(f"gap: {gap[0]} events dropped, latest {gap[1]}")
    elif out.json:
        out.record(as_object(event))
    else:
        out.line(f"{event.seq}  {local_time(event.ts)}  {inline(event.payload)}")
        out.flush()


def gap_of(event: Event) -> tuple[int, int] | None:
    """How many events are missing and the newest of them, when that is what an event says."""
    payload = event.payload
    if isinstance(payload, dict) and set(payload) == {"dropped", "latest_seq"}:
        return payload["dropped"], payload["latest_seq"]
    return None


def as_object(event: Event) -> dict[str, Any]:
    fields = {"channel": event.channel, "seq": event.seq, "ts": event.ts}
    if event.session is not None:
        fields["session"] = event.session
    return {**fields, "payload": event.payload}


def inline(payload: object) -> str:
    """A payload on one line: tagged values as the plain data they stand for."""
    return json.dumps(_plain(payload), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    tag = value.get("$")
    if tag == "null":
        return None
    if isinstance(tag, str) and "v" in value:
        return _plain(value["v"])
    return {name: _plain(item) for name, item in value.items()}


def publish(call: Call) -> int:
    channel, text = call.operands
    if not channel.startswith(USER_PREFIX):
        raise Failure("only user.* channels may be published to")
    try:
        payload = json.loads(text)
    except ValueError as error:
        if not call.flag("string"):
            raise Failure(f"not JSON: {error} (--string sends it as a string)") from error
        payload = text
    with call.connect() as client:
        call.attached(client)
        answer = client.call("events.publish", {"channel": channel, "payload": payload})
    if call.out.json:
        call.out.document(answer)
    else:
        call.out.line(f"{answer['channel']} {answer['seq']}")
    return Exit.SUCCESS


def channels(call: Call) -> int:
    with call.connect() as client:
        attached = call.attached(client)
        names = list(attached["channels"])
        try:
            tasks = client.call("task.list")
        except RpcError:
            # A kernel whose policy hides them still has the fixed channels.
            tasks = []
    names += [f"task.{task['task'].partition(':')[2]}" for task in tasks]
    if call.out.json:
        call.out.document(names)
    else:
        for name in names:
            call.out.line(name)
    return Exit.SUCCESS
