"""What every part of the router shares: configuration, store, event bus, launcher, clocks.

One `Kernel` exists per daemon. Its parts find each other through it, so that none has to be handed
a dozen collaborators.

Failure: none of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ipc.messages import Budget
from supervisor.metrics import Metrics
from supervisor.orphans import kill_orphans

if TYPE_CHECKING:
    from journal.records import PlanKey
    from journal.store import Store
    from leash.limits import CgroupTree
    from supervisor.config import Config
    from supervisor.connection import Connection
    from supervisor.event_feed import EventFeed
    from supervisor.events import EventBus
    from supervisor.launcher import Launcher
    from supervisor.plans import PlanKeeper
    from supervisor.policies import Policies
    from supervisor.questions import Questions
    from supervisor.secret_store import SecretStore
    from supervisor.sessions import Session, SessionRegistry
    from supervisor.store_recovery import StoreRecovery
    from supervisor.syntax import SyntaxPool
    from supervisor.tokens import TokenStore


def _nothing() -> None:
    return None


def _ignore_approval(_key: PlanKey, _approver: str) -> None:
    return None


@dataclass(slots=True)
class Kernel:
    """`draining` is set once, at the start of the drain. `connections` are the admitted ones."""

    config: Config
    loop: asyncio.AbstractEventLoop
    store: Store
    launcher: Launcher
    uid: int
    local_human: str
    started_ns: int
    cwd: bytes
    environment: list[tuple[bytes, bytes]]
    shell_config: bytes
    tier: str
    # The umask the daemon was started with: that of the user's programs. The daemon's own files
    # are private whatever it says.
    umask: int
    tokens: TokenStore | None = None
    secrets: SecretStore | None = None
    # The control groups of the workers, None without limits or without delegated controllers.
    cgroups: CgroupTree | None = None
    bus: EventBus = field(init=False)
    events: EventFeed = field(init=False)
    policies: Policies = field(init=False)
    plans: PlanKeeper = field(init=False)
    sessions: SessionRegistry = field(init=False)
    syntax: SyntaxPool = field(init=False)
    questions: Questions = field(init=False)
    recovery: StoreRecovery = field(init=False)
    metrics: Metrics = field(default_factory=Metrics)
    connections: set[Connection] = field(default_factory=set)
    draining: bool = False
    # Whether anybody ever attached: an ephemeral daemon waits for its first client.
    had_client: bool = False
    # The number of the newest terminal of the daemon.
    last_pty: int = 0
    socket: str = ""
    state_dir: str | None = None
    ephemeral: bool = False
    # Rises with each successful reload; `config_warnings` and `config_sources` are of the last one.
    generation: int = 1
    config_warnings: list[str] = field(default_factory=list)
    config_sources: list[str] = field(default_factory=list)
    # Reloads configuration, policy and tokens; returns the text of a failure, None on success.
    reload: Callable[[], str | None] = lambda: None
    # Told whenever a connection or a submission ended: ephemeral exit, idle exit, drain.
    quieter: Callable[[], None] = _nothing
    worker_ended: Callable[[], None] = _nothing
    # How many clients of the agent endpoint there are.
    agent_clients: Callable[[], int] = int
    # Told of every approval of a plan: an agent's turn may wait for it.
    plan_approved: Callable[[PlanKey, str], None] = _ignore_approval

    @property
    def budget(self) -> Budget:
        """The elision budgets of the running configuration."""
        limits = self.config.limits
        return Budget(
            max_bytes=limits.inline_bytes,
            max_rows=limits.inline_rows,
            max_items=limits.inline_items,
            max_bytes_raw=limits.inline_raw_bytes,
            hard_cap=limits.hard_cap_bytes,
        )

    @staticmethod
    def now_ns() -> int:
        """Wall clock, Unix nanoseconds."""
        return time.time_ns()

    def connection_closed(self) -> None:
        self.quieter()

    def reap_orphans(self) -> None:
        """End what ended workers left behind; it has become ours, since we are its reaper."""
        self.loop.run_in_executor(None, kill_orphans, self.launcher.strangers)

    def detach_all(self, session: Session) -> None:
        """Drop every attachment to a session that is gone."""
        for connection in self.connections:
            if connection.attachment is not None and connection.attachment.session is session:
                self._detach(connection)

    def detach_guests(self, session: Session) -> None:
        """Drop guests that are not listed any more, and give the others the mode in force."""
        for connection in self.connections:
            attachment = connection.attachment
            if attachment is None or attachment.session is not session or not attachment.guest:
                continue
            if attachment.principal in session.guests:
                attachment.read_only = session.share_mode == "read"
            else:
                self._detach(connection)

    def _detach(self, connection: Connection) -> None:
        assert connection.attachment is not None
        self.bus.forget(connection)
        connection.attachment.end()
        connection.attachment = None
