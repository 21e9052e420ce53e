"""Sessions of the daemon: who owns them, which worker runs each, and how workers come and go.

A session is keyed by (owner principal, name). Its worker starts with the first call and again, from
the committed state, with the first call after it ended. A worker that keeps ending is not restarted
for a while (chapter 81 §8.4).

Failure: `with_worker` reports `worker_backoff`, `shutting_down`, `worker_lost` or `internal_error`
to its second callback; a worker's end fails its calls and interrupts the submission it ran.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from ipc.jsonrpc import RpcError, internal, quota
from ipc.messages import (
    BINDING_CELL,
    PROTOCOL,
    RESULT_CELL,
    Ask,
    Caller,
    Cell,
    Content,
    Emit,
    Init,
    Progress,
    Ready,
    SetPolicies,
    Shutdown,
    Started,
    TaskOutput,
    TerminalChanged,
    encode_cells,
)
from journal.records import Barrier, CellChanges, DeleteSession, EnsureSession
from journal.session_state import AllSessions, Restorable, RestorableState
from journal.tasks import TasksOfSession
from leash import private
from leash.limits import GroupLimits
from supervisor.contents import close_all, memory_content
from supervisor.launcher import Launched, LaunchFailed
from supervisor.ordered_posts import OrderedPosts
from supervisor.tasks import Task, TaskTable
from supervisor.unsaved import UnsavedState
from supervisor.worker_process import Worker

if TYPE_CHECKING:
    from supervisor.kernel import Kernel
    from supervisor.submissions import Submission

log = structlog.get_logger()

SessionKey = tuple[str, str]
START_TIMEOUT_S: Final = 10.0
CRASHES_MAX: Final = 5
CRASH_WINDOW_S: Final = 60.0
BACKOFF_S: Final = 60.0
QUEUED_SUBMISSIONS_MAX: Final = 1024
AGENT_PREFIX: Final = "agent/"
# Stored results that a new worker gets at once; it asks for larger and older ones when it needs
# them.
RESULT_BYTES_AT_ONCE: Final = 64 * 1024
RESULTS_BYTES_AT_ONCE: Final = 8 * 1024 * 1024
ASKERS_KEPT: Final = 1024


class Asker(Protocol):
    """A submission, as the one its worker asks and reports for."""

    @property
    def caller(self) -> Caller: ...

    def on_progress(self, worker: Worker, progress: Progress, fds: list[int]) -> None: ...


OnWorker = Callable[[Worker], None]
OnFailure = Callable[[RpcError], None]


class AgentSide(Protocol):
    """What the agent endpoint wants to know of the worker of one of its sessions."""

    def asked(self, worker: Worker, ask: Ask) -> None: ...
    def worker_ended(self) -> None: ...


class Session:
    # `worker` is the process that is starting or running, `ready` whether it said so; `_waiting`
    # holds calls made before that, in order. `submissions` are those accepted and not yet answered,
    # by call id of the current worker. All of it changes on the event loop's thread.

    def __init__(self, kernel: Kernel, key: SessionKey, row_id: int, created_ns: int) -> None:
        self.kernel = kernel
        self.owner, self.name = key
        self.key = key
        self.row_id = row_id
        self.created_ns = created_ns
        self.last_used_ns = created_ns
        self.next_out = 1
        self.stored = False
        self.guests: tuple[str, ...] = ()
        self.share_mode: str | None = None
        self.worker: Worker | None = None
        self.ready = False
        self.restored = False
        self.lost: list[str] = []
        # Stored content the current worker rightly knows of and its values may be backed by, with
        # its length; and spills it writes to, by the number of the question that opened each.
        self.held: dict[bytes, int] = {}
        self.spills: dict[int, int] = {}
        # What the worker's calls were asked as, also for a while after they were answered.
        self.askers: OrderedDict[int, Asker] = OrderedDict()
        self.unsaved = UnsavedState()
        # Numbers of the results of each terminal client, by connection (chapter 60 §5.9).
        self._client_results: dict[int, deque[int]] = {}
        self.cwd = kernel.cwd
        # What a new worker begins with, and the principal its programs run as; the agent endpoint
        # gives its sessions their own.
        self.first_cwd = kernel.cwd
        self.environment = kernel.environment
        self.evaluates_as = self.owner
        # Whose policy holds for everything in the session, whoever calls.
        self.policy_owner = self.owner
        self.agent: AgentSide | None = None
        self.env_hash = ""
        self.tasks = TaskTable()
        self.submissions: dict[int, Submission] = {}
        # Open terminals by number; False once their program has ended.
        self.terminals: dict[int, bool] = {}
        # Who opened each of them.
        self.terminal_callers: dict[int, Caller] = {}
        self.restarts = 0
        self.task_submissions: dict[int, Submission] = {}
        self.queued = 0
        # Accepted submissions that were not forwarded yet, in their order.
        self.line: deque[Submission] = deque()
        self.attached = 0
        self.closing = False
        self.posts = OrderedPosts(kernel.store, kernel.loop)
        self._waiting: deque[tuple[OnWorker, OnFailure]] = deque()
        self._starting = False
        self._crashes: deque[float] = deque()
        self._backoff_until = 0.0

    @property
    def state(self) -> str:
        """`idle`, `starting`, `ready`, `busy`, `draining` or `backoff` (chapter 60 §5.4)."""
        if time.monotonic() < self._backoff_until:
            return "backoff"
        if self.worker is None:
            return "starting" if self._starting else "idle"
        if not self.ready:
            return "starting"
        if self.kernel.draining:
            return "draining"
        return "busy" if self.queued else "ready"

    @property
    def ptys(self) -> int:
        """How many terminals are open, ended ones that were not closed included."""
        return len(self.terminals)

    # -- the worker --------------------------------------------------------------------------------

    def with_worker(self, then: OnWorker, failed: OnFailure) -> None:
        """Call `then` with the ready worker, at once when there is one; starts it when needed.

        Callbacks run in the order of the calls.
        """
        if self.ready and self.worker is not None and not self._waiting:
            then(self.worker)
            return
        now = time.monotonic()
        if now < self._backoff_until:
            failed(
                internal(
                    "worker_backoff",
                    "session worker ended repeatedly",
                    session=self.name,
                    retry_after_ms=int((self._backoff_until - now) * 1000) + 1,
                )
            )
            return
        if self.kernel.draining:
            failed(internal("shutting_down", "kernel is shutting down"))
            return
        self._waiting.append((then, failed))
        if not self._starting and self.worker is None:
            self._starting = True
            self.kernel.loop.create_task(self._start())

    async def _start(self) -> None:
        try:
            state = await self._load_state()
            launched = await self.kernel.launcher.launch(
                "session_worker",
                f"shoal:{self.name}",
                {
                    "open_files": self.kernel.config.quotas.worker_open_files,
                    "memory_bytes": self.kernel.config.quotas.worker_memory_bytes,
                    "umask": self.kernel.umask,
                },
            )
        except LaunchFailed as error:
            self._starting = False
            log.error("worker.start", session=self.name, owner=self.owner, err=str(error))
            self._fail_waiting(internal("internal_error", "no session worker could be started"))
            return
        except Exception as error:  # noqa: BLE001 - a session that cannot start is no reason to end
            self._starting = False
            log.error("worker.start", session=self.name, owner=self.owner, err=str(error))
            self._fail_waiting(internal("internal_error", "session state could not be read"))
            return
        self._starting = False
        self._adopt(launched, state)

    async def _load_state(self) -> Restorable:
        if not self.stored:
            return Restorable([], [], [])
        # What the last worker left behind has to be there before the next one goes on from it.
        await self.posts.settled()
        await self.kernel.store.commit(Barrier())
        return await self.kernel.store.load(
            RestorableState(self.row_id, RESULT_CELL, RESULT_BYTES_AT_ONCE, RESULTS_BYTES_AT_ONCE)
        )

    def _adopt(self, launched: Launched, state: Restorable) -> None:
        kernel = self.kernel
        self.worker = worker = Worker(launched, kernel.loop, self, self.name)
        log.info("worker.start", session=self.name, owner=self.owner, worker=launched.pid)
        config = kernel.config
        self._limit(launched.pid)
        cells = [Cell(name, value) for name, value in state.cells]
        content, fds = memory_content(encode_cells(cells)) if cells else (Content(), [])
        self.restored = self.stored
        self.held = dict(state.pinned)
        worker.send(
            Init(
                protocol=PROTOCOL,
                session=self.name,
                owner=self.policy_owner,
                cwd=self.first_cwd,
                environment=self.environment,
                next_out=self.next_out,
                restored=self.restored,
                cells=content,
                results=state.later,
                client_results=self._results_of_clients(),
                config=kernel.shell_config,
                capture_bytes=config.limits.capture_bytes,
                spill_bytes=config.limits.spill_bytes,
                transcript_values=config.quotas.transcript_values,
                transcript_bytes=config.quotas.transcript_bytes,
                kill_grace_ms=config.kernel.kill_grace_ms,
                journal=True,
            ),
            fds,
        )
        self.brief()
        kernel.loop.call_later(START_TIMEOUT_S, self._check_started, worker)

    def _limit(self, pid: int) -> None:
        """Put the worker into a control group of its own, before it starts anything."""
        kernel = self.kernel
        if kernel.cgroups is not None:
            quotas = kernel.config.quotas
            try:
                kernel.cgroups.enter(
                    pid, GroupLimits(quotas.worker_memory_bytes, quotas.worker_pids)
                )
            except OSError as error:
                log.error("worker.limits", session=self.name, worker=pid, err=str(error))

    def brief(self) -> None:
        """Tell the worker what those may do who can act in this session."""
        if self.worker is not None:
            policies = self.kernel.policies
            principals = dict.fromkeys((self.policy_owner, self.evaluates_as, *self.guests))
            self.worker.send(SetPolicies([policies.entry(principal) for principal in principals]))

    def _check_started(self, worker: Worker) -> None:
        if self.worker is worker and not self.ready:
            worker.kill("start")

    def _fail_waiting(self, error: RpcError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _then, failed in waiting:
            failed(error)

    # -- worker listener ---------------------------------------------------------------------------

    def on_ready(self, worker: Worker, ready: Ready) -> None:
        self.ready = True
        self.stored = True
        self.cwd = ready.cwd
        self.env_hash = ready.env_hash
        self.lost = ready.lost
        while self._waiting and self.worker is worker and worker.alive:
            then, _failed = self._waiting.popleft()
            then(worker)

    def assigned(self, cells: CellChanges) -> None:
        """Names that have a saved value now are not lost any more."""
        if self.lost:
            named = {
                name.removeprefix(BINDING_CELL)
                for name, value in cells.changed
                if value is not None
            }
            self.lost = [name for name in self.lost if name not in named]

    def on_started(self, worker: Worker, started: Started, fds: list[int]) -> None:
        submission = self.submissions.get(started.id)
        if submission is None:
            for fd in fds:
                os.close(fd)
            return
        submission.on_started(started, fds)

    def remember(self, connection: int, number: int) -> None:
        """Note a result of a terminal client, so that `it` and `out` outlive the worker."""
        results = self._client_results.get(connection)
        if results is None:
            kept = self.kernel.config.quotas.transcript_values or None
            results = self._client_results[connection] = deque(maxlen=kept)
        results.append(number)

    def _results_of_clients(self) -> dict[int, list[int]]:
        """Results of the terminal clients that are still there."""
        present = {connection.number for connection in self.kernel.connections}
        self._client_results = {
            connection: results
            for connection, results in self._client_results.items()
            if connection in present
        }
        return {connection: list(results) for connection, results in self._client_results.items()}

    def asked_as(self, call_id: int, asker: Asker) -> None:
        """Note who a call of the worker is for."""
        self.askers[call_id] = asker
        if len(self.askers) > ASKERS_KEPT:
            self.askers.popitem(last=False)

    def on_progress(self, worker: Worker, progress: Progress, fds: list[int]) -> None:
        asker = self.askers.get(progress.id)
        if asker is None:
            close_all(fds)
        else:
            asker.on_progress(worker, progress, fds)

    def on_emit(self, worker: Worker, emit: Emit) -> None:
        if emit.channel.startswith("user."):
            self.kernel.events.emitted(self, emit.channel, emit.payload)

    def on_task_output(self, worker: Worker, output: TaskOutput) -> None:
        task = self.tasks.find(output.task)
        if task is not None and task.live and task.watched:
            self.kernel.events.task_output(self, task, output)

    def on_terminal_changed(self, worker: Worker, change: TerminalChanged) -> None:
        if change.pty in self.terminals:
            self.terminals[change.pty] = change.alive
            self.kernel.events.terminal(self, change.pty, alive=change.alive)

    def on_ask(self, worker: Worker, ask: Ask) -> None:
        if self.agent is not None and ask.op.startswith("agent."):
            self.agent.asked(worker, ask)
        else:
            self.kernel.questions.answer(self, worker, ask)

    def on_end(self, worker: Worker, reason: str, status: int | None) -> None:
        if self.worker is not worker:
            return
        self.worker = None
        was_ready, self.ready = self.ready, False
        self._forget_worker()
        self.kernel.loop.run_in_executor(None, private.remove, worker.pid)
        if self.kernel.cgroups is not None:
            self.kernel.loop.run_in_executor(None, self.kernel.cgroups.sweep)
        self._end_terminals()
        expected = self.closing or self.kernel.draining or reason == "idle"
        log.log(
            20 if expected else 40,
            "worker.exit",
            session=self.name,
            owner=self.owner,
            worker=worker.pid,
            reason=reason,
            status=status,
        )
        if not expected:
            self.restarts += 1
            self.kernel.metrics.count(
                "shoal_worker_restarts_total",
                "start" if not was_ready else "stuck" if reason == "stuck" else "crash",
            )
            self._count_crash()
        self._fail_waiting(internal("worker_lost", "session worker ended", session=self.name))
        self.kernel.reap_orphans()
        self.kernel.worker_ended()
        if self.agent is not None:
            self.agent.worker_ended()

    def _forget_worker(self) -> None:
        """What only the worker had is gone with it."""
        close_all(list(self.spills.values()))
        self.spills.clear()
        self.held.clear()
        self.askers.clear()
        self.unsaved.clear()

    def _end_terminals(self) -> None:
        """The terminals are gone with their worker."""
        terminals, self.terminals = self.terminals, {}
        self.terminal_callers.clear()
        for number, alive in terminals.items():
            if alive:
                self.kernel.events.terminal(self, number, alive=False)
            self.kernel.events.terminal_closed(self, number)

    def _count_crash(self) -> None:
        now = time.monotonic()
        self._crashes.append(now)
        while self._crashes and now - self._crashes[0] > CRASH_WINDOW_S:
            self._crashes.popleft()
        if len(self._crashes) >= CRASHES_MAX:
            self._crashes.clear()
            self._backoff_until = now + BACKOFF_S
            log.error("worker.backoff", session=self.name, owner=self.owner, seconds=BACKOFF_S)

    # -- ending ------------------------------------------------------------------------------------

    def stop_worker(self, grace_ms: int, reason: str = "shutdown") -> None:
        """Ask the worker to end, and end it when the grace has passed."""
        worker = self.worker
        if worker is None:
            return
        worker.send(Shutdown(grace_ms))
        worker.close(reason)
        loop = self.kernel.loop
        loop.call_later(grace_ms / 1000, worker.terminate)


def is_agent_session(name: str) -> bool:
    """Whether a session belongs to the agent endpoint; its own sessions cannot have such names."""
    return name.startswith(AGENT_PREFIX)


class SessionRegistry:
    # Sessions by (owner, name); changed only in `load`, `open` and `forget`, on the loop's thread.
    # `_opening` holds the sessions whose row is being committed.

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._by_key: dict[SessionKey, Session] = {}
        self._opening: dict[SessionKey, asyncio.Future[Session]] = {}

    def load(self) -> None:
        """Know every stored session again; blocking, before the daemon serves."""
        store = self._kernel.store
        for row, shares in store.fetch(AllSessions()):
            session = Session(self._kernel, (row.owner, row.name), row.id, row.created_ns)
            session.last_used_ns = row.last_used_ns
            session.next_out = row.next_out
            session.stored = True
            session.guests, session.share_mode = shares.principals, shares.mode
            for task in store.fetch(TasksOfSession(row.id)):
                session.tasks.add(_stored_task(task, row.name))
            self._by_key[session.key] = session

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_key.values()))

    def get(self, key: SessionKey) -> Session | None:
        return self._by_key.get(key)

    async def open(self, key: SessionKey) -> Session:
        """The caller's own session of that name, created and committed when new."""
        session = self._by_key.get(key)
        if session is not None:
            return session
        opening = self._opening.get(key)
        if opening is None:
            if not is_agent_session(key[1]):
                self._check_quotas(key[0])
            opening = asyncio.ensure_future(self._create(key))
            self._opening[key] = opening
            opening.add_done_callback(lambda _future: self._opening.pop(key, None))
        return await asyncio.shield(opening)

    async def _create(self, key: SessionKey) -> Session:
        now_ns = self._kernel.now_ns()
        row_id = await self._kernel.store.commit(EnsureSession(key[0], key[1], now_ns))
        session = Session(self._kernel, key, row_id, now_ns)
        self._by_key[key] = session
        log.info("session.create", session=key[1], owner=key[0])
        return session

    def _check_quotas(self, owner: str) -> None:
        """Sessions of the agent endpoint are counted by it, under its own limit."""
        quotas = self._kernel.config.quotas
        ours = [key for key in (*self._by_key, *self._opening) if not is_agent_session(key[1])]
        used = sum(
            1 for session in self if session.state != "idle" and not is_agent_session(session.name)
        ) + sum(1 for key in self._opening if not is_agent_session(key[1]))
        if quotas.sessions and used >= quotas.sessions:
            raise quota("quotas.sessions", quotas.sessions, used)
        mine = sum(1 for key in ours if key[0] == owner)
        if quotas.sessions_per_principal and mine >= quotas.sessions_per_principal:
            raise quota("quotas.sessions_per_principal", quotas.sessions_per_principal, mine)

    async def forget(self, session: Session) -> None:
        """End a session for good: its stored state is deleted."""
        session.closing = True
        self._by_key.pop(session.key, None)
        session.stop_worker(self._kernel.config.kernel.kill_grace_ms)
        await self._kernel.store.commit(DeleteSession(session.row_id))


def _stored_task(row: Any, session: str) -> Task:
    task = Task(row.number, session, row.principal, row.started_ns)
    task.state = row.state
    task.finished_ns = row.finished_ns
    task.result_ref = row.result_ref
    task.error = row.error_json
    return task
