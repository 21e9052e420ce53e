"""What a daemon does now and then: status and signs of life for the service manager, idle ends.

Every few seconds it looks whether the daemon or a session has been idle for longer than configured.
The sign of life goes out only while the main loop is on time and the store answers, so that a
daemon that merely exists is restarted.

Failure: a missed sign of life is logged once per miss; deciding what follows is the manager's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from journal.errors import StoreError
from journal.query import CustomRead

if TYPE_CHECKING:
    from supervisor.kernel import Kernel
    from supervisor.service_notify import Notifier

log = structlog.get_logger()

INTERVAL_S: Final = 5.0
# Of the watchdog's time: how late the main loop may be and still count as alive.
LAG_MAX: Final = 0.25


class Upkeep:
    # `_idle_since` is the loop time at which the daemon was first seen without client and work,
    # None while it has some. Everything runs on the loop's thread.

    def __init__(self, kernel: Kernel, notifier: Notifier, stop: Callable[[], None]) -> None:
        self._kernel = kernel
        self._notifier = notifier
        self._stop = stop
        self._idle_since: float | None = None
        self._timers: list[asyncio.TimerHandle] = []

    def start(self) -> None:
        loop = self._kernel.loop
        self._timers = [loop.call_later(self._interval_s(), self._look)]
        if self._notifier.watchdog_s:
            self._expect_sign(self._notifier.watchdog_s)

    def _interval_s(self) -> float:
        """As often as the shortest idle time that is configured needs."""
        config = self._kernel.config
        limits = (config.kernel.idle_exit_s, config.quotas.session_idle_s)
        return float(min(INTERVAL_S, *(limit or INTERVAL_S for limit in limits)))

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()

    def status(self) -> str:
        """The status line of the service manager."""
        kernel = self._kernel
        workers = sum(1 for session in kernel.sessions if session.worker is not None)
        tasks = sum(len(session.tasks.live()) for session in kernel.sessions)
        return f"{workers} sessions, {len(kernel.connections)} connections, {tasks} tasks"

    # -- idle ends ---------------------------------------------------------------------------------

    def _look(self) -> None:
        self._notifier.status(self.status())
        self._end_idle_sessions()
        self._end_idle_daemon()
        self._timers[0] = self._kernel.loop.call_later(self._interval_s(), self._look)

    def _end_idle_sessions(self) -> None:
        kernel = self._kernel
        limit_s = kernel.config.quotas.session_idle_s
        if not limit_s:
            return
        horizon = kernel.now_ns() - limit_s * 1_000_000_000
        for session in kernel.sessions:
            if (
                session.ready
                and not session.attached
                and not session.queued
                and not session.ptys
                and session.last_used_ns < horizon
            ):
                log.info("session.idle", session=session.name, owner=session.owner)
                session.stop_worker(kernel.config.kernel.kill_grace_ms, "idle")

    def _end_idle_daemon(self) -> None:
        kernel = self._kernel
        limit_s = kernel.config.kernel.idle_exit_s
        clients = bool(kernel.connections) or kernel.agent_clients() > 0
        busy = clients or any(session.queued for session in kernel.sessions)
        now = kernel.loop.time()
        if busy or not limit_s:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= limit_s:
            log.info("kernel.idle", seconds=limit_s)
            self._stop()

    # -- signs of life -----------------------------------------------------------------------------

    def _expect_sign(self, watchdog_s: float) -> None:
        loop = self._kernel.loop
        due = loop.time() + watchdog_s / 2
        timer = loop.call_at(due, self._sign, due, watchdog_s)
        self._timers[1:] = [timer]

    def _sign(self, due: float, watchdog_s: float) -> None:
        lag = self._kernel.loop.time() - due
        self._expect_sign(watchdog_s)
        if lag > watchdog_s * LAG_MAX:
            log.error("service.watchdog", lag_s=round(lag, 3))
            return

        def answered(_rows: object, error: StoreError | None) -> None:
            if error is None:
                self._notifier.alive()
            else:
                log.error("service.watchdog", err=str(error))

        self._kernel.store.read(CustomRead(lambda db: db.execute("SELECT 1").fetchone()), answered)
