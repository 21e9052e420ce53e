"""What the daemon removes by itself: leftovers of a crash at the start, old content and rows later.

Both limits of content and the one of rows default to keeping everything; every round reads the
configuration in force. A round runs on the store's job thread, one at a time, while the daemon
serves; a slow round delays the next one and nothing else.

Failure: a round that fails is logged and the next one comes at its time.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import structlog

from journal.errors import StoreClosed, StoreError
from journal.gc import Collect, RemoveEntries, Sweep

if TYPE_CHECKING:
    from supervisor.kernel import Kernel

log = structlog.get_logger()

SECONDS_PER_DAY: Final = 24 * 3600
# How often to look whether rounds were switched on meanwhile.
OFF_INTERVAL_S: Final = 60.0


class Retention:
    # `_running` is the one task, from `start` to `close`.

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._running = self._kernel.loop.create_task(self._forever())

    def close(self) -> None:
        if self._running is not None:
            self._running.cancel()

    async def _forever(self) -> None:
        with contextlib.suppress(StoreClosed):
            await self._swept()
            while True:
                interval_s = self._kernel.config.retention.interval_s
                await asyncio.sleep(interval_s or OFF_INTERVAL_S)
                if self._kernel.config.retention.interval_s:
                    await self._round()

    async def _swept(self) -> None:
        try:
            swept = await self._kernel.store.maintain(Sweep(self._kernel.started_ns / 1e9))
        except StoreClosed:
            raise
        except StoreError as error:
            log.error("retention.failed", step="sweep", err=str(error))
        else:
            log.debug("retention.swept", swept=str(swept))

    async def _round(self) -> None:
        kernel, wanted = self._kernel, self._kernel.config.retention
        try:
            if wanted.entry_ttl_days:
                before_ns = kernel.now_ns() - wanted.entry_ttl_days * SECONDS_PER_DAY * 10**9
                removed = await kernel.store.maintain(RemoveEntries(before_ns, wanted.vacuum))
                if removed:
                    log.info("retention.entries", removed=removed)
            if wanted.blob_ttl_days or wanted.blob_max_bytes:
                report = await kernel.store.maintain(
                    Collect(
                        wanted.blob_ttl_days * SECONDS_PER_DAY if wanted.blob_ttl_days else None,
                        wanted.blob_max_bytes or None,
                        apply=True,
                        vacuum=wanted.vacuum,
                    )
                )
                if report.deleted:
                    log.info(
                        "retention.blobs",
                        removed=len(report.deleted),
                        bytes=report.reclaimed_bytes,
                    )
        except StoreClosed:
            raise
        except StoreError as error:
            log.error("retention.failed", step="collect", err=str(error))
