"""What the router publishes, and in which spaces (chapter 61 §9, §10).

Events about a submission are published after its commit, in the order `journal`,
`session.transcript`, `render`, under the durable numbers the commit gave them.

Failure: none; publishing only appends to rings and queues.
"""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from ipc.messages import Caller, Inject, TaskOutput
from journal.event_log import ALL_SPACE, journal_payload
from journal.plans import Plan
from journal.records import Finished, Interrupted, PlanKey
from supervisor.events import EventLimit
from supervisor.tasks import Task, task_of_output

if TYPE_CHECKING:
    from supervisor.kernel import Kernel
    from supervisor.sessions import Session

JOURNAL: Final = "journal"
TRANSCRIPT: Final = "session.transcript"
RENDER: Final = "render"
CLOSED_TERMINALS_KEPT: Final = 256
_encode_json = msgspec.json.Encoder().encode


def _plan_fields(key: PlanKey, effects: object, expires_ns: int | None) -> dict[str, object]:
    """What `pending` and `requested` events say about a plan (chapter 61 §10.4)."""
    expires = {"$": "null"} if expires_ns is None else {"$": "int", "v": expires_ns}
    return {
        "plan_ref": {"$": "str", "v": key.ref},
        "effects": {"$": "list", "v": effects},
        "principal": {"$": "str", "v": key.owner},
        "session": {"$": "str", "v": key.session},
        "expires": {"$": "null"},
        "expires_ns": expires,
    }


class EventFeed:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        # Channels of closed terminals, oldest first.
        self._closed: deque[tuple[str, str]] = deque()

    def submission_ended(
        self,
        session: Session,
        caller: Caller,
        *,
        entry: int,
        head: str,
        ok: bool,
        committed: Finished,
        ended_ns: int,
        transcript: bytes,
        render: bytes,
    ) -> None:
        """The events of one committed submission."""
        bus = self._kernel.bus
        payload = journal_payload(entry, head, ok, caller.principal)
        self._journal(session, caller.principal, payload, ended_ns,
                      committed.journal_seq_all, committed.journal_seq)  # fmt: skip
        if committed.transcript_seq is not None:
            bus.publish_numbered(
                session.owner, TRANSCRIPT, committed.transcript_seq, ended_ns, transcript,
                session=session.name, principal=caller.principal,
            )  # fmt: skip
        if render:
            bus.publish(
                session.owner, RENDER, render, session=session.name, principal=caller.principal
            )

    def submission_interrupted(self, session: Session, row: Interrupted, ended_ns: int) -> None:
        """The `journal` event of a submission whose worker ended."""
        payload = journal_payload(row.entry_id, row.head, False, row.principal)
        self._journal(
            session, row.principal, payload, ended_ns, row.journal_seq_all, row.journal_seq
        )

    def _journal(
        self, session: Session, principal: str, payload: bytes, ts: int, seq_all: int, seq: int
    ) -> None:
        for space, number in ((ALL_SPACE, seq_all), (session.owner, seq)):
            self._kernel.bus.publish_numbered(
                space, JOURNAL, number, ts, payload, session=session.name, principal=principal
            )

    # -- plans -------------------------------------------------------------------------------------

    def plan_pending(self, key: PlanKey, effects: object, expires_ns: int | None) -> None:
        """A plan was stored that needs approval."""
        self._approval(key, "pending", _plan_fields(key, effects, expires_ns))

    def plan_requested(self, plan: Plan, requested_effects: list[str]) -> None:
        """The owner of a plan asked for its approval."""
        fields = _plan_fields(plan.key, msgspec.Raw(plan.effects_json), plan.expires_ns)
        fields["requested_effects"] = {
            "$": "list",
            "v": [{"$": "str", "v": kind} for kind in requested_effects],
        }
        self._approval(plan.key, "requested", fields)

    def plan_approved(self, plan: Plan, approver: str, expires_ns: int) -> None:
        """A plan was approved; `expires_ns` is the end of the approval."""
        fields = {
            "plan_ref": {"$": "str", "v": plan.key.ref},
            "principal": {"$": "str", "v": plan.key.owner},
            "session": {"$": "str", "v": plan.key.session},
            "approver": {"$": "str", "v": approver},
            "expires_ns": {"$": "int", "v": expires_ns},
        }
        self._approval(plan.key, "approved", fields)
        self._kernel.plan_approved(plan.key, approver)

    def _approval(self, key: PlanKey, kind: str, fields: dict[str, object]) -> None:
        """An event for the plan's owner and everybody who may approve it, once each."""
        payload = _encode_json({"$": "record", "v": {"type": {"$": "str", "v": kind}, **fields}})
        inboxes = dict.fromkeys((key.owner, *self._kernel.policies.approvers(key.owner)))
        for principal in inboxes:
            self._kernel.bus.publish(
                principal, "approval", payload, session=key.session, principal=key.owner
            )

    def task(self, session: Session, task: Task, payload: bytes) -> None:
        self._kernel.bus.publish(
            session.owner, task.channel, payload, session=session.name, principal=task.principal
        )

    def task_output(self, session: Session, task: Task, output: TaskOutput) -> None:
        """What the commands of a running task printed (chapter 61 §10.7)."""
        payload = b'{"$":"record","v":{"stream":%b,"bytes":%b,"tail":%b}}' % (
            _tagged("str", output.stream),
            _tagged("int", output.count),
            _tagged("str", output.tail),
        )
        self._kernel.bus.publish(
            session.owner,
            task.output_channel,
            payload,
            session=session.name,
            principal=task.principal,
        )

    def terminal(self, session: Session, number: int, *, alive: bool) -> None:
        """Something about a terminal changed (chapter 61 §10.8)."""
        payload = b'{"$":"record","v":{"changed":%b,"alive":%b}}' % (
            _tagged("bool", True),
            _tagged("bool", alive),
        )
        self._kernel.bus.publish(session.owner, f"pty.{number}", payload, session=session.name)

    def terminal_closed(self, session: Session, number: int) -> None:
        """The rings of closed terminals are kept for a while, then go."""
        self._closed.append((session.owner, f"pty.{number}"))
        while len(self._closed) > CLOSED_TERMINALS_KEPT:
            self._kernel.bus.drop_channel(*self._closed.popleft())

    def interest(self, space: str, channel: str) -> None:
        """Somebody reads or subscribes to a channel: the output of a task is published from now
        on."""
        number = task_of_output(channel)
        if number is None:
            return
        for session in self._kernel.sessions:
            task = session.tasks.find(number) if session.owner == space else None
            if task is None or not task.live or task.watched:
                continue
            task.watched = True
            submission = session.task_submissions.get(number)
            if submission is not None:
                submission.watch()

    def drop_tasks(self, session: Session, numbers: list[int]) -> None:
        """The rings of task channels go with the records."""
        for number in numbers:
            self._kernel.bus.drop_channel(session.owner, f"task.{number}")
            self._kernel.bus.drop_channel(session.owner, f"task.{number}.output")

    def emitted(self, session: Session, channel: str, payload: bytes) -> None:
        """An event of the session's own bus on a `user.` channel; past the limit it stays there."""
        with contextlib.suppress(EventLimit):
            self._kernel.bus.publish(session.owner, channel, payload, session=session.name)

    def inject(self, session: Session, channel: str, payload: bytes) -> None:
        """Pass a client's event on to the session's own bus, when it has a worker."""
        if session.worker is not None and session.ready:
            session.worker.send(Inject(channel, payload))


def _tagged(kind: str, value: object) -> bytes:
    """A value in wire form (chapter 60 §8)."""
    return b'{"$":"%b","v":%b}' % (kind.encode(), _encode_json(value))
