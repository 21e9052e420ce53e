"""The router process: start, serve, reload, drain, end (chapter 81 §8).

`run` does the whole life of one daemon and returns its exit code. The start goes from what can fail
without a trace (configuration, locks) to what others can see (the socket, the ready line); the end
goes back the same way.

Failure: a start that fails prints one line on standard error and gives 1; nothing is left behind. A
second SIGTERM or SIGINT ends the daemon at once with 1.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog
import uvloop

from ipc.jsonrpc import notification_line
from ipc.messages import Shutdown
from journal.completion import settle
from journal.errors import StoreError, StoreUnavailable
from journal.event_log import LogSequences
from journal.records import Recover
from journal.state_dir import DirectoryLock, secure_directory
from journal.store import Store, StoreConfig
from leash import private
from leash.limits import CgroupTree
from leash.platform import sandbox_tier
from supervisor import logs, zygote_place
from supervisor.agent import socket as agent_socket
from supervisor.agent_endpoint import AgentEndpoint
from supervisor.config import Config, ConfigError, Loaded
from supervisor.event_feed import EventFeed
from supervisor.events import EventBus
from supervisor.file_watch import FileWatch
from supervisor.kernel import Kernel
from supervisor.kernel_endpoint import KernelEndpoint
from supervisor.kernel_options import KernelOptions
from supervisor.launcher import Launcher
from supervisor.listeners import Listener, StartFailure, listen, prepare
from supervisor.paths import resolve
from supervisor.plans import PlanKeeper
from supervisor.policies import Policies, PolicyError
from supervisor.questions import Questions
from supervisor.retention import Retention
from supervisor.secret_store import SecretStore
from supervisor.service_notify import VARIABLES, ActivationError, Notifier, activated_listener
from supervisor.sessions import SessionRegistry
from supervisor.store_recovery import StoreRecovery
from supervisor.syntax import SyntaxPool
from supervisor.tasks import worker_lost_json
from supervisor.token_watch import TokenWatch
from supervisor.tokens import TokenStore, TokenStoreBroken
from supervisor.upkeep import Upkeep
from supervisor.version import VERSION

log = structlog.get_logger()

EPHEMERAL_LINGER_S: Final = 1.0
# How long a submission may take to answer and commit once its last program was killed.
CUT_OFF_S: Final = 1.0
# Variables that speak to this process alone, or carry a client's secret.
_NOT_INHERITED: Final = VARIABLES | {"SHOAL_TOKEN", "SHOAL_TOKEN_FILE"}


def run(options: KernelOptions) -> int:
    """Serve until told to stop; returns the exit code."""
    umask = os.umask(0o077)
    try:
        logs.configure(*_log_settings(options.config))
    except OSError as error:
        return _start_failed(f"logging.file: {error.strerror}")
    _become_reaper()
    try:
        return uvloop.run(_Daemon(options, umask).serve())
    except StartFailure as failure:
        return _start_failed(str(failure))


def _start_failed(text: str) -> int:
    sys.stderr.write(f"shoal-kernel: {text}\n")
    sys.stderr.flush()
    return 1


def _warn(warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        sys.stderr.write(f"shoal-kernel: warning: {warning}\n")
    sys.stderr.flush()


def _log_settings(config: Config) -> tuple[str, str, str | None, int, int]:
    logging = config.logging
    return logging.level, logging.format, logging.file, logging.max_bytes, logging.keep


def _become_reaper() -> None:
    if sys.platform == "linux":
        import prctl

        prctl.set_child_subreaper(1)
        prctl.set_name("shoal:router")


class _Daemon:
    # `_stopping` is the event the main task waits on; `_signals` counts the requests to stop. What
    # the start acquired is released in reverse by `_closers`.

    def __init__(self, options: KernelOptions, umask: int) -> None:
        self._options = options
        self._umask = umask
        self._config = options.config
        self._closers: list[Callable[[], None]] = []
        self._signals = 0
        self._linger: asyncio.TimerHandle | None = None
        self._agent: tuple[AgentEndpoint, Listener] | None = None

    # -- life --------------------------------------------------------------------------------------

    async def serve(self) -> int:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._notifier = Notifier(self._options.environ)
        self._closers.append(self._notifier.close)
        try:
            listener = self._acquire()
        except BaseException:
            self._release()
            raise
        server = await self._loop.create_unix_server(
            KernelEndpoint(self._kernel).connect, sock=listener.socket
        )
        if self._agent is not None:
            await self._agent[0].listen(self._agent[1])
        self._ready(listener)
        await self._stopping.wait()
        try:
            await self._drain(server, listener)
        finally:
            self._release()
        return 0 if self._signals < 2 else 1

    def _acquire(self) -> Listener:
        """Everything of chapter 81 §8.1 up to the listening socket."""
        options, config = self._options, self._config
        uid = os.geteuid()
        policies = self._load_policies(f"uid:{uid}")
        lock = self._lock_state()
        passed = self._prepare_socket(options.paths.socket)
        # The zygote loads its image while the store is opened.
        launcher = Launcher(zygote_place.make(options.paths.socket.parent))
        self._closers.append(launcher.close)
        launcher.warm_up()
        store = self._open_store(lock)
        self._closers.append(store.close)
        self._kernel = kernel = Kernel(
            config=config,
            loop=self._loop,
            store=store,
            launcher=launcher,
            uid=uid,
            local_human=f"uid:{uid}",
            started_ns=Kernel.now_ns(),
            cwd=os.getcwdb(),
            environment=[
                (name, value)
                for name, value in os.environb.items()
                if name.decode("utf-8", "replace") not in _NOT_INHERITED
            ],
            shell_config=_shell_config(config),
            tier=sandbox_tier(),
            umask=self._umask,
            tokens=self._open_tokens(),
            secrets=SecretStore(options.paths.secret_dir),
            cgroups=_cgroups(config),
        )
        kernel.policies = policies
        kernel.plans = PlanKeeper(kernel)
        self._watch_policy()
        kernel.bus = EventBus(self._loop, store, config.limits)
        kernel.events = EventFeed(kernel)
        kernel.bus.on_interest = kernel.events.interest
        kernel.sessions = SessionRegistry(kernel)
        kernel.syntax = SyntaxPool(kernel)
        kernel.questions = Questions(kernel)
        kernel.recovery = StoreRecovery(kernel)
        kernel.quieter = self._quieter
        self._token_watch = TokenWatch(kernel)
        self._upkeep = Upkeep(kernel, self._notifier, self._stopping.set)
        kernel.reload = self._reload
        kernel.socket = str(options.paths.socket)
        kernel.state_dir = None if options.in_memory else str(options.paths.state_dir)
        kernel.ephemeral = options.ephemeral
        self._note_sources(options.loaded)
        store.apply(Recover(kernel.now_ns(), worker_lost_json))
        kernel.bus.seed(store.fetch(LogSequences()))
        kernel.sessions.load()
        self._install_signals()
        if lock is not None:
            lock.note(
                {
                    "pid": os.getpid(),
                    "socket": str(options.paths.socket),
                    "started_ns": kernel.started_ns,
                    "version": VERSION,
                }
            )
        listener = self._listen(passed)
        if options.agent_endpoint:
            self._agent = self._open_agent()
        return listener

    def _open_agent(self) -> tuple[AgentEndpoint, Listener]:
        """The agent endpoint on its bound socket. Without durable state its files are in a private
        directory that goes with the daemon, unless the environment says where its socket is."""
        options = self._options
        path, data_dir = options.paths.agent_socket, options.paths.state_dir.absolute()
        if options.in_memory:
            scratch = tempfile.TemporaryDirectory(prefix="shoal-")
            self._closers.append(scratch.cleanup)
            data_dir = Path(scratch.name)
            if path.parent == options.paths.state_dir:
                path = data_dir / path.name
        lock, listener = agent_socket.bind(path.absolute())
        self._closers += [lock.release, listener.close]
        endpoint = AgentEndpoint(self._kernel, data_dir, options.environ)
        endpoint.load()
        endpoint.reload_daemon = None if options.ephemeral else self._reload
        self._kernel.agent_clients = lambda: endpoint.clients
        return endpoint, listener

    def _load_policies(self, local_human: str) -> Policies:
        """The policy before anything else: without it nobody may be served."""
        paths = self._options.paths
        expected = paths.config_dir / "leash.toml" if paths.config_dir else None
        policies = Policies(local_human, expected)
        try:
            warnings = policies.load(paths.policy)
        except PolicyError as error:
            raise StartFailure(str(error)) from None
        _warn(warnings)
        return policies

    def _watch_policy(self) -> None:
        """A policy file that is written, replaced or made counts at once."""
        policies = self._kernel.policies
        self._policy_watch = FileWatch(self._loop, self._policy_changed)
        self._policy_watch.watch(policies.path or policies.expected)
        self._closers.append(self._policy_watch.close)

    def _policy_changed(self) -> None:
        if not self._options.ephemeral:
            self._reload()

    def _lock_state(self) -> DirectoryLock | None:
        if self._options.in_memory:
            return None
        state = self._options.paths.state_dir
        try:
            secure_directory(state)
            lock = DirectoryLock(state)
        except StoreError as error:
            raise StartFailure(str(error)) from None
        except OSError as error:
            raise StartFailure(f"state directory {state}: {error.strerror}") from None
        self._closers.append(lock.release)
        return lock

    def _prepare_socket(self, path: Path) -> socket.socket | None:
        """The socket the service manager passed; else the configured path is made ready for one."""
        try:
            passed = activated_listener(self._options.environ)
        except ActivationError as error:
            raise StartFailure(str(error)) from None
        if passed is not None:
            return passed
        self._closers.append(prepare(path).release)
        return None

    def _listen(self, passed: socket.socket | None) -> Listener:
        path = self._options.paths.socket
        if passed is not None:
            listener = Listener(passed, path, None)
        else:
            listener = listen(path)
        self._closers.append(listener.close)
        return listener

    def _open_store(self, lock: DirectoryLock | None) -> Store:
        config = self._config.journal
        try:
            return Store.open(
                StoreConfig(
                    path=None if self._options.in_memory else self._options.paths.state_dir,
                    sync="full" if config.sync == "full" else "normal",
                    busy_timeout_ms=config.busy_timeout_ms,
                    output_cap_bytes=config.output_cap_bytes,
                    lock=lock,
                    on_failure_change=self._store_changed,
                ),
                deliver=lambda batch: self._deliver(batch),
            )
        except StoreError as error:
            raise StartFailure(str(error)) from None

    def _deliver(self, batch: list) -> None:  # type: ignore[type-arg]
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(settle, batch)

    def _store_changed(self, failure: StoreUnavailable | None) -> None:
        _log_store(failure)
        if failure is None:
            self._kernel.recovery.recovered()

    def _open_tokens(self) -> TokenStore | None:
        if self._options.in_memory:
            return None
        try:
            return TokenStore.open(self._options.paths.token_store)
        except TokenStoreBroken as error:
            raise StartFailure(str(error)) from None
        except OSError as error:
            raise StartFailure(f"token store: {error.strerror}") from None

    def _release(self) -> None:
        while self._closers:
            self._closers.pop()()

    def _ready(self, listener: Listener) -> None:
        options = self._options
        if options.pid_file is not None:
            options.pid_file.write_text(f"{os.getpid()}\n")
            self._closers.append(lambda: options.pid_file.unlink(missing_ok=True))  # type: ignore[union-attr]
        sys.stderr.write(f"shoal-kernel: ready {listener.path}\n")
        sys.stderr.flush()
        log.info("kernel.ready", socket=str(listener.path), version=VERSION)
        self._notifier.ready(self._upkeep.status())
        self._upkeep.start()
        self._closers.append(self._upkeep.close)
        self._token_watch.start()
        self._closers.append(self._token_watch.close)
        retention = Retention(self._kernel)
        retention.start()
        self._closers.append(retention.close)
        options.on_ready()
        # What the workers of a daemon that was killed left behind.
        self._loop.run_in_executor(None, private.sweep)
        # What exists now lives as long as the daemon; collections need not look at it again.
        gc.collect()
        gc.freeze()

    # -- signals -----------------------------------------------------------------------------------

    def _install_signals(self) -> None:
        loop = self._loop
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        loop.add_signal_handler(
            signal.SIGUSR1, lambda: log.info("kernel.status", status=self._upkeep.status())
        )
        loop.add_signal_handler(
            signal.SIGUSR2, lambda: logs.toggle_debug(self._kernel.config.logging.level)
        )

    def _stop(self) -> None:
        self._signals += 1
        self._stopping.set()
        if self._signals > 1:
            for session in self._kernel.sessions:
                if session.worker is not None:
                    session.worker.kill("shutdown")
            self._release()
            os._exit(1)

    def _hang_up(self) -> None:
        """SIGHUP."""
        if not self._options.ephemeral:
            self._reload()

    def _reload(self) -> str | None:
        """Read configuration and policy again: all of it counts, or none. Returns what is wrong."""
        kernel = self._kernel
        self._notifier.reloading()
        options = self._options
        try:
            loaded = options.load()
            paths = resolve(options.environ, loaded.config, policy=options.policy)
            logs.configure(*_log_settings(loaded.config))
            warnings = kernel.policies.load(paths.policy)
        except (ConfigError, PolicyError, OSError) as error:
            log.error("reload.failed", err=str(error))
            kernel.metrics.set("shoal_reload_success", 0)
            self._notifier.reloaded()
            return str(error)
        kernel.config = loaded.config
        kernel.generation += 1
        _warn(warnings)
        self._policy_watch.watch(kernel.policies.path or kernel.policies.expected)
        for session in kernel.sessions:
            session.brief()
        self._note_sources(loaded)
        kernel.bus.set_queue(loaded.config.limits.event_queue)
        kernel.metrics.set("shoal_reload_success", 1)
        kernel.metrics.set("shoal_config_generation", kernel.generation)
        if self._agent is not None:
            self._agent[0].reload()
        log.info("reload.ok", generation=kernel.generation)
        self._notifier.reloaded()
        return None

    def _note_sources(self, loaded: Loaded) -> None:
        self._kernel.config_warnings = list(loaded.warnings)
        self._kernel.config_sources = [
            source.path for source in loaded.sources if source.state == "used"
        ]
        for warning in loaded.warnings:
            log.warning("config.warning", msg=warning)

    # -- quiet exits and status --------------------------------------------------------------------

    def _quieter(self) -> None:
        """A client left or work ended: an ephemeral daemon ends a second after its last client."""
        if not self._options.ephemeral or not self._kernel.had_client or self._has_client():
            return
        if self._linger is None:
            self._linger = self._loop.call_later(EPHEMERAL_LINGER_S, self._lingered)

    def _lingered(self) -> None:
        self._linger = None
        if not self._has_client():
            self._stopping.set()

    def _has_client(self) -> bool:
        kernel = self._kernel
        return kernel.agent_clients() > 0 or any(
            connection.attachment is not None for connection in kernel.connections
        )

    # -- drain -------------------------------------------------------------------------------------

    async def _drain(self, server: asyncio.AbstractServer, listener: Listener) -> None:
        kernel, config = self._kernel, self._kernel.config.kernel
        self._notifier.stopping()
        kernel.draining = True
        log.info("kernel.drain", seconds=config.drain_timeout_s)
        server.close()
        listener.remove()
        agent_drain = None
        if self._agent is not None:
            agent_drain = self._loop.create_task(self._agent[0].drain())
        notice = notification_line(
            "kernel",
            msgspec.json.encode({"state": "draining", "seconds": config.drain_timeout_s}),
        )
        for connection in list(kernel.connections):
            connection.write(notice)
        await self._until_quiet(config.drain_timeout_s)
        for session in kernel.sessions:
            if session.worker is not None:
                # Before the cancellations: the worker then kills what ignores the first signal.
                session.worker.send(Shutdown(config.kill_grace_ms))
            for submission in list(session.submissions.values()):
                submission.cancel()
        grace_s = config.kill_grace_ms / 1000
        await self._until_quiet(grace_s + CUT_OFF_S)
        if agent_drain is not None:
            await agent_drain
        await self._stop_workers(grace_s)
        for connection in list(kernel.connections):
            connection.close()
        log.info("kernel.stop")

    async def _until_quiet(self, seconds: float) -> None:
        """Wait until no submission is accepted and unanswered, at most that long."""
        kernel = self._kernel
        quiet = asyncio.Event()

        def look() -> None:
            if not any(session.queued for session in kernel.sessions):
                quiet.set()

        kernel.quieter = look
        look()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(quiet.wait(), seconds)
        kernel.quieter = lambda: None

    async def _stop_workers(self, grace_s: float) -> None:
        kernel = self._kernel
        kernel.syntax.close()
        workers = [session.worker for session in kernel.sessions if session.worker is not None]
        if not workers:
            return
        ended = asyncio.Event()
        kernel.worker_ended = lambda: None if self._living() else ended.set()
        for session in kernel.sessions:
            session.stop_worker(int(grace_s * 1000))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), grace_s)
        for worker in workers:
            worker.kill("shutdown")

    def _living(self) -> bool:
        return any(session.worker is not None for session in self._kernel.sessions)


def _log_store(failure: StoreUnavailable | None) -> None:
    if failure is None:
        log.info("journal.recovered")
    else:
        log.error("journal.error", cause=failure.cause, err=failure.text)


def _cgroups(config: Config) -> CgroupTree | None:
    """The groups of the workers, when there is something to limit."""
    quotas = config.quotas
    if not (quotas.worker_memory_bytes or quotas.worker_pids):
        return None
    tree = CgroupTree.open()
    if tree is None:
        log.warning("cgroup.unavailable", msg="no controllers are delegated: no worker limits")
    return tree


# What the language may look at: everything but the kernel's own limits and secrets.
_SHOWN: Final = (
    "version", "prompt", "history", "render", "editor", "completion", "adapters", "init",
    "aliases", "env", "reef", "kernel", "journal", "leash",
)  # fmt: skip


def _shell_config(config: Config) -> bytes:
    """The snapshot that `config.get` shows inside the language (chapter 81 §6.4)."""
    everything = msgspec.to_builtins(config)
    return msgspec.json.encode({name: everything[name] for name in _SHOWN if name in everything})
