"""Cancellation tokens: one per submission, task and parallel child, in a tree (chapter 30 §13).

Cancelling a token cancels every token below it, wakes everything that waits on one of them and runs
the registered callbacks, all in the thread that cancels. `cancelled` is a plain attribute, so that
the checks in evaluated code cost one attribute read.

Failure: `check` raises Cancelled. A callback that raises is a programming error; the remaining
callbacks and tokens are still served before the error goes on to the canceller.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Final

from worker.errors import Cancelled

# One lock for the shape of all trees: it is held for a few instructions, never while waiting.
_shape: Final = threading.RLock()

# One write of this wakes a reader: eight bytes because that is what an eventfd takes.
_WAKE: Final = (1).to_bytes(8, sys.byteorder)


def _wake_descriptors() -> tuple[int, int]:
    """A descriptor to wait on and one to write to; the same where the platform has eventfd."""
    if sys.platform == "linux":
        fd = os.eventfd(0, os.EFD_CLOEXEC)
        return fd, fd
    return os.pipe()


class Registration:
    """A callback registered on a token; `close` takes it back, also after it ran."""

    __slots__ = ("_callback", "_token")

    def __init__(self, token: CancelToken, callback: Callable[[], object]) -> None:
        self._token = token
        self._callback = callback

    def close(self) -> None:
        with _shape:
            self._token._registrations.discard(self)

    def _run(self) -> None:
        self._callback()

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class CancelToken:
    # `cancelled` goes from False to True once and never back. Children are held weakly: a token
    # nobody waits for any more is gone with its task. Parent, children and registrations change
    # only under `_shape`.

    __slots__ = (
        "__weakref__",
        "_children",
        "_event",
        "_parent",
        "_registrations",
        "_signal_fd",
        "_wait_fd",
        "cancelled",
    )

    def __init__(self, parent: CancelToken | None = None) -> None:
        self.cancelled = False
        self._parent = parent
        self._children: weakref.WeakSet[CancelToken] = weakref.WeakSet()
        self._registrations: set[Registration] = set()
        self._event = threading.Event()
        self._wait_fd: int | None = None
        self._signal_fd: int | None = None
        if parent is not None:
            with _shape:
                parent._children.add(self)
                inherited = parent.cancelled
            if inherited:
                self.cancel()

    def child(self) -> CancelToken:
        """A token below this one; already cancelled when this one is."""
        return CancelToken(self)

    def check(self) -> None:
        """Raise Cancelled when the token is cancelled."""
        if self.cancelled:
            raise Cancelled

    def cancel(self) -> None:
        """Cancel this token and all below it. Harmless when done before."""
        with _shape:
            if self.cancelled:
                return
            self.cancelled = True
            registrations = list(self._registrations)
            self._registrations.clear()
            children = list(self._children)
            if self._signal_fd is not None:
                os.write(self._signal_fd, _WAKE)
        self._event.set()
        failure: Exception | None = None
        for registration in registrations:
            try:
                registration._run()
            except Exception as error:  # noqa: BLE001 - served to the canceller below
                failure = failure or error
        for token in children:
            try:
                token.cancel()
            except Exception as error:  # noqa: BLE001 - served to the canceller below
                failure = failure or error
        if failure is not None:
            raise failure

    def wait(self, seconds: float | None = None) -> bool:
        """Sleep until cancelled or until the time has passed; True when cancelled."""
        if self.cancelled:
            return True
        if seconds is not None:
            # The platform's longest lock timeout is below what a duration can express.
            seconds = min(max(seconds, 0.0), threading.TIMEOUT_MAX)
        return self._event.wait(seconds)

    def on_cancel(self, callback: Callable[[], object]) -> Registration:
        """Run `callback` when the token is cancelled, at once when it already is."""
        registration = Registration(self, callback)
        with _shape:
            if not self.cancelled:
                self._registrations.add(registration)
                return registration
        callback()
        return registration

    @property
    def wait_fd(self) -> int:
        """A descriptor that is readable once the token is cancelled. Owned by the token."""
        with _shape:
            if self._wait_fd is None:
                self._wait_fd, self._signal_fd = _wake_descriptors()
                for fd in {self._wait_fd, self._signal_fd}:
                    weakref.finalize(self, os.close, fd)
                if self.cancelled:
                    os.write(self._signal_fd, _WAKE)
            return self._wait_fd

    def hand_over(self, to: CancelToken) -> None:
        """Hang the living children under another token; this one then has none.

        At the end of a submission its running tasks move below the session's token.
        """
        with _shape:
            moved = list(self._children)
            self._children.clear()
            for token in moved:
                token._parent = to
                to._children.add(token)
            late = to.cancelled
        if late:
            for token in moved:
                token.cancel()
