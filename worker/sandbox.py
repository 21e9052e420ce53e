"""Confining the session's process and threads: who evaluates where, and what its children get.

The worker of a confined owner restricts itself before it evaluates anything, so every thread and
child inherits that domain. A caller with other grants is evaluated on a thread of its own that
first restricts itself to them; restrictions stack, so it has the intersection. Programs are started
from a thread below the caller's that holds the rules of children: what a child may use is less than
what the interpreter needs. The evaluator's state is shared by these threads and used by one of them
at a time, in the order of the queue.

A `Domain` is one such place: `run` evaluates there, `launch` starts programs from there. The local
human without a policy has none, and no cost.

Failure: `enter` raises OSError when the owner's domain cannot be made, and the session must not
start then. A caller's domain that cannot be made answers `sandbox enforcement failed`, and what
should have run there does not run.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sysconfig
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from leash import landlock, seccomp
from leash.confinement import NOTHING_CONFINED, Confinement, confinement
from leash.private import make
from leash.privileges import drop_capabilities, no_new_privs
from leash.status import Backend, shortfall, this_host
from leash.verdict import Standing
from worker.builtins.removing import TRASH
from worker.commands.lookup import find_program
from worker.commands.processes import TABLE
from worker.errors import Raised, raised
from worker.evaluate.threads import evaluator_thread

T = TypeVar("T")

DOMAINS_KEPT_MAX: Final = 8
# The interpreter's own files: its library, what is installed, and the packages of this program.
_INSTALLATION: Final = tuple(
    dict.fromkeys(
        (
            *(
                path
                for name in ("stdlib", "platstdlib", "purelib", "platlib")
                if (path := sysconfig.get_path(name))
            ),
            *(str(Path(__file__).parent.parent / name) for name in ("worker", "ipc", "leash")),
        )
    )
)
_CHILD_BASE: Final = landlock.distinct(landlock.CHILD_BASE)
_WORKER_BASE: Final = landlock.distinct(
    (
        *landlock.CHILD_BASE,
        *landlock.WORKER_BASE,
        *((path, landlock.BASE_READ) for path in _INSTALLATION),
    )
)


class Domain:
    """A place for the work of one principal: a thread for evaluation, one for starting programs."""

    # The two queues are served by one thread each, until they get None.

    def __init__(self, sandbox: Sandbox, confined: Confinement, *, own_thread: bool) -> None:
        self.confined = confined
        self._sandbox = sandbox
        self._work: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._starts: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._own_thread = own_thread
        if own_thread:
            _begin(self._serve_work, "evaluator")

    def run(self, function: Callable[[], T]) -> T:
        """Evaluate in the domain and wait for it."""
        return _done_by(self._work, function) if self._own_thread else function()

    def launch(self, start: Callable[[Mapping[bytes, bytes]], T], env: Mapping[bytes, bytes]) -> T:
        """Start a program with the rules of children; `start` gets the environment it has."""
        if self.confined.hermetic:
            self._refuse_less()
        private = self._sandbox.private
        given = {**env, b"TMPDIR": os.fsencode(private)} if private else env
        return _done_by(self._starts, lambda: start(given))

    def _refuse_less(self) -> None:
        missing = shortfall(self.confined, self._sandbox.backend)
        if missing is not None:
            raise raised(
                "custom",
                "hermetic sandbox requested but cannot be fully enforced on this host: " + missing,
            )

    def close(self) -> None:
        """End the threads when what they do is done."""
        self._work.put(None)
        self._starts.put(None)

    def _serve_work(self, ready: Callable[[BaseException | None], None]) -> None:
        with _told(ready):
            self._sandbox.restrict(self.confined, _WORKER_BASE)
            # Below the evaluating thread, so that this may signal what it started.
            self.begin_starter()
        _serve(self._work)

    def begin_starter(self) -> None:
        """Start the thread that starts programs, below the calling one."""
        # Nobody waits for it: the first program does, in its queue.
        threading.Thread(target=self._serve_starts, name="starter", daemon=True).start()

    def _serve_starts(self) -> None:
        try:
            self._sandbox.restrict(self.confined, _CHILD_BASE)
        except OSError as failure:
            _refuse(self._starts, _unenforced(failure))
        else:
            _serve(self._starts)


class Sandbox:
    # `base` is the domain of the whole process, made once by `enter` for the standing `_owner`, in
    # the only thread there is then. `_domains` are the callers' by principal and caps, least used
    # first, under `_lock`.
    # `_making` is served by a thread in the domain of the process, where every other begins: the
    # thread that happens to ask may be confined itself.

    def __init__(self, backend: Backend | None = None) -> None:
        self.backend = this_host() if backend is None else backend
        self.private = ""
        self.base: Domain | None = None
        self._owner: Standing | None = None
        self._search_path = b""
        self._making: queue.SimpleQueue[_Job | None] | None = None
        self._lock = threading.Lock()
        self._domains: OrderedDict[tuple[str, tuple[str, ...]], Domain] = OrderedDict()

    def enter(self, owner: Standing, environment: Mapping[bytes, bytes]) -> None:
        """Confine this process to the owner's grants. Raises OSError."""
        self._search_path = environment.get(b"PATH", b"")
        if owner.unrestricted:
            return
        confined = confinement(owner)
        if not confined.any:
            return
        self._prepare()
        self.restrict(confined, _WORKER_BASE)
        self._owner = owner
        self.base = Domain(self, confined, own_thread=False)

    def settle(self) -> None:
        """What the session can begin without: programs are started by a thread of their own."""
        if self.base is not None:
            self.base.begin_starter()

    def domain(self, standing: Standing) -> Domain | None:
        """Where the work of a principal belongs, None when it belongs wherever the process is."""
        if standing.unrestricted or standing == self._owner:
            return self.base
        confined = confinement(standing)
        base = self.base.confined if self.base is not None else NOTHING_CONFINED
        if not confined.any or confined == base:
            return self.base
        key = (standing.principal, standing.caps)
        with self._lock:
            found = self._domains.get(key)
            if found is None or found.confined != confined:
                if found is not None:
                    found.close()
                found = self._domains[key] = self._make(confined)
                if len(self._domains) > DOMAINS_KEPT_MAX:
                    self._domains.popitem(last=False)[1].close()
            self._domains.move_to_end(key)
            return found

    def _make(self, confined: Confinement) -> Domain:
        making = self._making
        if making is None:
            making = self._making = queue.SimpleQueue()
            evaluator_thread(lambda: _serve(making), "domains")
            # It serves everybody, so it must not begin in the domain of one of them.
            TABLE.attend()

        def make() -> Domain:
            self._prepare()
            return Domain(self, confined, own_thread=True)

        return _done_by(making, make)

    def restrict(self, confined: Confinement, base: tuple[tuple[str, int], ...]) -> None:
        """Restrict the calling thread. Raises OSError."""
        if base is _WORKER_BASE:
            # Where children are started is below where this was done.
            no_new_privs()
            drop_capabilities()
            seccomp.restrict()
        if self.backend.landlock_abi > 0:
            private = (self.private, TRASH.directory())
            programs = tuple((path, landlock.GRANT_READ) for path in self._programs(confined))
            landlock.apply(landlock.rules_for(confined, (*base, *programs), private))

    def _programs(self, confined: Confinement) -> list[str]:
        """The files that the spawn list names: they may be outside of everything readable."""
        if not confined.filesystem:
            return []
        env = {b"PATH": self._search_path}
        found = [entry if "/" in entry else find_program(entry, env, "/")
                 for entry in confined.programs if entry]  # fmt: skip
        return [path for path in found if path]

    def _prepare(self) -> None:
        """Make the private directory, and what every domain shares, while it can be made."""
        if not self.private:
            self.private = make(os.getpid())
            TRASH.directory()


# --- threads that work on order ------------------------------------------------------------------


class _Job:
    """`done` is held until the work is: a lock wakes its one waiter at half the cost of an event,
    and every program of a confined principal waits here."""

    __slots__ = ("done", "error", "function", "result")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()


def _done_by(jobs: queue.SimpleQueue[_Job | None], function: Callable[[], T]) -> T:
    job = _Job(function)
    jobs.put(job)
    job.done.acquire()
    if job.error is not None:
        raise job.error
    result: T = job.result
    return result


def _serve(jobs: queue.SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        try:
            job.result = job.function()
        except BaseException as failure:  # noqa: BLE001 - raised again in the thread that waits
            job.error = failure
        job.done.release()


def _refuse(jobs: queue.SimpleQueue[_Job | None], reason: Raised) -> None:
    while (job := jobs.get()) is not None:
        job.error = reason
        job.done.release()


@contextlib.contextmanager
def _told(ready: Callable[[BaseException | None], None]) -> Iterator[None]:
    """Tell how the beginning of a thread went; when badly, the thread ends."""
    try:
        yield
    except BaseException as failure:  # noqa: BLE001 - told to the thread that waits
        ready(failure)
        raise SystemExit from None
    ready(None)


def _begin(
    serve: Callable[[Callable[[BaseException | None], None]], None], name: str
) -> threading.Thread:
    """Start a thread and wait until it has restricted itself. Raises a language error."""
    outcome: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    thread = evaluator_thread(lambda: serve(outcome.put), name)
    failure = outcome.get()
    if failure is not None:
        raise _unenforced(failure)
    return thread


def _unenforced(failure: BaseException) -> Raised:
    return raised("custom", f"sandbox enforcement failed: {failure}")


# One per worker process, as the process is what it confines.
SANDBOX: Final = Sandbox()
