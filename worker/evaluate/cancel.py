"""Cancellation tokens: one per submission, task and parallel child, in a tree (chapter 30 §13).

Cancelling a token cancels every token below it, wakes everything that waits on one of them and runs
the registered callbacks, all in the thread that cancels. `cancelled` is a plain attribute, so that
the checks in evaluated code cost one attribute read.

A token can be held: evaluation then waits at its next cancellation point, which is exactly where
`cancelled` is read. A held token is of a subclass whose `cancelled` waits, so that tokens that are
not held pay nothing for it. Cancelling releases first.

Failure: `check` raises Cancelled. A callback that raises is a programming error; the remaining
callbacks and tokens are still served before the error goes on to the canceller.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

from worker.errors import Cancelled

# One lock for the shape of all trees: it is held for a few instructions, never while waiting.
_shape: Final = threading.RLock()

# One write of this wakes a reader: eight bytes because that is what an eventfd takes.
_WAKE: Final = (1).to_bytes(8, sys.byteorder)


def _wake_descriptors() -> tuple[int, int]:
    """A descriptor to wait on and one to write to; the same where the platform has eventfd."""
    if hasattr(os, "eventfd"):
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
            if self._token._registrations is not None:
                self._token._registrations.discard(self)

    def _run(self) -> None:
        self._callback()

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Hold:
    """One time a token is held: `over` is set when it is released."""

    __slots__ = ("over", "standing")

    def __init__(self, standing: Callable[[], object]) -> None:
        self.standing = standing
        self.over = threading.Event()


class CancelToken:
    # `cancelled` and `_tripped` go from False to True together, once, and never back; `cancelled`
    # is for evaluation, which may have to wait when it reads it, `_tripped` for everybody else.
    # Children are held weakly: a token nobody waits for any more is gone with its task. Parent,
    # children, registrations, `_hold` and the class change only under `_shape`. `_sleepers` counts
    # the threads in `wait`.

    __slots__ = (
        "__weakref__",
        "_children",
        "_event",
        "_hold",
        "_parent",
        "_registrations",
        "_signal_fd",
        "_sleepers",
        "_tripped",
        "_wait_fd",
        "cancelled",
    )

    def __init__(self, parent: CancelToken | None = None) -> None:
        self.cancelled = False
        self._tripped = False
        self._hold: Hold | None = None
        self._sleepers = 0
        self._parent = parent
        # Made when they are needed: most tokens end without child, callback or sleeper.
        self._children: weakref.WeakSet[CancelToken] | None = None
        self._registrations: set[Registration] | None = None
        self._event: threading.Event | None = None
        self._wait_fd: int | None = None
        self._signal_fd: int | None = None
        if parent is not None:
            with _shape:
                parent._adopt(self)
                inherited = parent._tripped
                if parent._hold is not None:
                    self._hold_tree(parent._hold.standing)
            if inherited:
                self.cancel()

    def _adopt(self, child: CancelToken) -> None:
        """Hang a token below this one; under `_shape`."""
        if self._children is None:
            self._children = weakref.WeakSet()
        self._children.add(child)

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
            if self._tripped:
                return
            self._tripped = True
            self._release()
            self.cancelled = True
            registrations, self._registrations = list(self._registrations or ()), None
            children = list(self._children or ())
            if self._signal_fd is not None:
                os.write(self._signal_fd, _WAKE)
            if self._event is not None:
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
        with _shape:
            self._sleepers += 1
            if self._event is None:
                self._event = threading.Event()
                if self._tripped:
                    self._event.set()
            event = self._event
        try:
            return event.wait(seconds)
        finally:
            with _shape:
                self._sleepers -= 1

    def on_cancel(self, callback: Callable[[], object]) -> Registration:
        """Run `callback` when the token is cancelled, at once when it already is."""
        registration = Registration(self, callback)
        with _shape:
            if not self._tripped:
                if self._registrations is None:
                    self._registrations = set()
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
                if self._tripped:
                    os.write(self._signal_fd, _WAKE)
            return self._wait_fd

    # -- holding ---------------------------------------------------------------------------------

    def hold(self, standing: Callable[[], object]) -> None:
        """Make evaluation under this token, and every token below it, wait where it reads
        `cancelled` next. `standing` is called by each thread that comes to wait, before it does;
        tokens made below a held one are held with it.
        """
        with _shape:
            self._hold_tree(standing)

    def _hold_tree(self, standing: Callable[[], object]) -> None:
        if self._tripped or self._hold is not None:
            return
        self._hold = Hold(standing)
        self.__class__ = _HeldToken
        for token in list(self._children or ()):
            token._hold_tree(standing)

    def release(self) -> None:
        """Let a held tree go on. Harmless when it is not held."""
        with _shape:
            self._release_tree()

    def _release_tree(self) -> None:
        self._release()
        for token in list(self._children or ()):
            token._release_tree()

    def _release(self) -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            self.__class__ = CancelToken
            hold.over.set()

    @property
    def waiting(self) -> bool:
        """Whether evaluation under this token sleeps or waits for something, as far as it says."""
        with _shape:
            return self._sleepers > 0 or bool(self._registrations)

    def hand_over(self, to: CancelToken) -> None:
        """Hang the living children under another token; this one then has none.

        At the end of a submission its running tasks move below the session's token.
        """
        with _shape:
            moved, self._children = list(self._children or ()), None
            for token in moved:
                token._parent = to
                to._adopt(token)
            late = to._tripped
        if late:
            for token in moved:
                token.cancel()


# The slot's own accessor, which the property below hides while a token is held.
_plain_cancelled: Final[Any] = vars(CancelToken)["cancelled"]


class _HeldToken(CancelToken):
    """A token while it is held. Instances are only made by assigning the class."""

    __slots__ = ()

    @property
    def cancelled(self) -> bool:
        hold = self._hold
        if hold is not None:
            hold.standing()
            hold.over.wait()
        return self._tripped

    @cancelled.setter
    def cancelled(self, value: bool) -> None:
        _plain_cancelled.__set__(self, value)
