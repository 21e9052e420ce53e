"""Starting one program: `posix_spawn` of the C library, with everything a child must be given.

Not `subprocess`: its children inherit ignored signals and the caller's signal mask, and it holds
the interpreter lock until the program has been loaded. `posix_spawn` resets all signal dispositions
and the mask, makes the process group (or session) before the program runs, changes directory in the
child only, and releases the lock. The child shares no memory with other threads of the worker
beyond the call itself, so starting programs is safe from any thread.

The child gets descriptors 0, 1 and 2 and no others: all descriptors of the worker are
close-on-exec, and where the C library can, everything from 3 up is closed as well.

A program may be given by an open descriptor of its file, as `/proc/self/fd/N` (closed once the
program runs) or `/dev/fd/N` (stays open, so that the interpreter of a script can read it).

Failure: `launch` raises OSError with the errno of the step that failed (`filename` is the program
or the directory), and leaves no process behind.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

# How `worker.commands.spawn.start` starts what it resolved: program, argv, environment, directory.
Launch = Callable[[bytes, list[bytes], Mapping[bytes, bytes], str], int]

# A single word of this many bytes cannot be passed on Linux (MAX_ARG_STRLEN with its final NUL).
WORD_BYTES_MAX: Final = 131_072

_libc: Final = ctypes.CDLL(None, use_errno=True)

# Both opaque types are far smaller than this on every C library (glibc: 336 and 80 bytes).
_OPAQUE_BYTES: Final = 512
_SIGSET_BYTES: Final = 128
_SIGNALS_BYTES: Final = 8

_SETPGROUP: Final = 0x02
_SETSIGDEF: Final = 0x04
_SETSIGMASK: Final = 0x08
_LINUX_SETSID: Final = 0x80
_DARWIN_SETSID: Final = 0x0400
_DARWIN_CLOEXEC_DEFAULT: Final = 0x4000

_SETSID: Final = _DARWIN_SETSID if sys.platform == "darwin" else _LINUX_SETSID
_CLOSE_FLAG: Final = _DARWIN_CLOEXEC_DEFAULT if sys.platform == "darwin" else 0
_FIRST_CLOSED_FD: Final = 3


def _function(name: str) -> Any:
    return getattr(_libc, name, None)


_posix_spawn: Final = _function("posix_spawn")
_actions_init: Final = _function("posix_spawn_file_actions_init")
_actions_destroy: Final = _function("posix_spawn_file_actions_destroy")
_add_dup2: Final = _function("posix_spawn_file_actions_adddup2")
_add_close: Final = _function("posix_spawn_file_actions_addclose")
_add_open: Final = _function("posix_spawn_file_actions_addopen")
_add_chdir: Final = _function("posix_spawn_file_actions_addchdir_np")
_add_closefrom: Final = _function("posix_spawn_file_actions_addclosefrom_np")


def _attributes(flags: int) -> ctypes.Array[ctypes.c_char]:
    """Spawn attributes: all signals default, none blocked, own process group or session."""
    attributes = ctypes.create_string_buffer(_OPAQUE_BYTES)
    signals = ctypes.create_string_buffer(_SIGSET_BYTES)
    _check(_libc.posix_spawnattr_init(attributes))
    _libc.sigfillset(signals)
    if sys.platform == "linux":
        # The C library leaves out the signals it keeps for itself, and would then ignore them in
        # the child.
        ctypes.memset(signals, 0xFF, _SIGNALS_BYTES)
    # The two signals nobody can handle are refused by some C libraries.
    _libc.sigdelset(signals, int(signal.SIGKILL))
    _libc.sigdelset(signals, int(signal.SIGSTOP))
    _check(_libc.posix_spawnattr_setsigdefault(attributes, signals))
    _libc.sigemptyset(signals)
    _check(_libc.posix_spawnattr_setsigmask(attributes, signals))
    _check(_libc.posix_spawnattr_setpgroup(attributes, 0))
    flags |= _SETSIGDEF | _SETSIGMASK | _CLOSE_FLAG
    _check(_libc.posix_spawnattr_setflags(attributes, ctypes.c_short(flags)))
    return attributes


def _check(code: int, filename: bytes | str | None = None) -> None:
    if code != 0:
        raise OSError(code, os.strerror(code), filename)


# Read-only after import, shared by all launches.
_GROUP_LEADER: Final = _attributes(_SETPGROUP)
_SESSION_LEADER: Final = _attributes(_SETSID)


def launch(
    program: bytes,
    argv: Sequence[bytes],
    env: Mapping[bytes, bytes],
    cwd: str,
    stdio: tuple[int, int, int],
) -> int:
    """Start a program in a process group of its own; the result is its pid and its group.

    `program` is the file to execute, `argv` its complete argument vector, `env` its complete
    environment, `stdio` the descriptors that become 0, 1 and 2.
    """
    actions = _Actions()
    try:
        for target, source in enumerate(stdio):
            actions.add(_add_dup2, source, target)
        return _start(program, argv, env, cwd, actions, _GROUP_LEADER)
    finally:
        actions.close()


def launch_on_terminal(
    program: bytes,
    argv: Sequence[bytes],
    env: Mapping[bytes, bytes],
    cwd: str,
    terminal: str,
    stdin: int | None = None,
) -> int:
    """Start a program as session leader with the named terminal as 0, 1, 2 and as its controlling
    terminal; the result is its pid, its session and its group. With `stdin` that is its 0."""
    actions = _Actions()
    try:
        # Opened by the session leader itself: that makes it the controlling terminal.
        actions.add(_add_open, 0, os.fsencode(terminal), os.O_RDWR, 0)
        actions.add(_add_dup2, 0, 1)
        actions.add(_add_dup2, 0, 2)
        if stdin is not None:
            actions.add(_add_dup2, stdin, 0)
        return _start(program, argv, env, cwd, actions, _SESSION_LEADER)
    finally:
        actions.close()


class _Actions:
    """File actions of one launch."""

    __slots__ = ("buffer",)

    def __init__(self) -> None:
        self.buffer = ctypes.create_string_buffer(_OPAQUE_BYTES)
        _check(_actions_init(self.buffer))

    def add(self, function: Any, *arguments: Any) -> None:
        _check(function(self.buffer, *arguments))

    def close(self) -> None:
        _actions_destroy(self.buffer)


def _start(
    program: bytes,
    argv: Sequence[bytes],
    env: Mapping[bytes, bytes],
    cwd: str,
    actions: _Actions,
    attributes: ctypes.Array[ctypes.c_char],
) -> int:
    directory = os.fsencode(cwd)
    entries = [name + b"=" + value for name, value in env.items()]
    _check_words(program, argv, entries)
    _close_others(actions, program)
    # Last: a relative name among the file actions is relative to the worker's own directory.
    actions.add(_add_chdir, directory)
    pid = ctypes.c_int()
    code = _posix_spawn(
        ctypes.byref(pid),
        program,
        actions.buffer,
        attributes,
        (ctypes.c_char_p * (len(argv) + 1))(*argv, None),
        (ctypes.c_char_p * (len(entries) + 1))(*entries, None),
    )
    if code != 0:
        _raise_for(code, program, directory)
    return pid.value


_BINARY_DESCRIPTOR: Final = b"/proc/self/fd/"
_SCRIPT_DESCRIPTOR: Final = b"/dev/fd/"


def _close_others(actions: _Actions, program: bytes) -> None:
    """See to it that no descriptor but the standard ones, and the program's own, is open."""
    first = _FIRST_CLOSED_FD
    for prefix in (_SCRIPT_DESCRIPTOR, _BINARY_DESCRIPTOR):
        if program.startswith(prefix):
            own = int(program.removeprefix(prefix))
            for fd in range(first, own):
                actions.add(_add_close, fd)
            if prefix == _SCRIPT_DESCRIPTOR:
                # Copying a descriptor onto itself takes back its close-on-exec mark in the child.
                actions.add(_add_dup2, own, own)
            first = own + 1
    if _add_closefrom is not None:
        actions.add(_add_closefrom, first)


def _check_words(program: bytes, argv: Sequence[bytes], entries: Sequence[bytes]) -> None:
    for words in (argv, entries):
        for word in words:
            if len(word) >= WORD_BYTES_MAX:
                _check(errno.E2BIG, program)
            if b"\0" in word:
                _check(errno.EINVAL, program)


def _raise_for(code: int, program: bytes, directory: bytes) -> None:
    """Raise for a failed start; the C library does not say whether it was the directory's fault."""
    try:
        enterable = stat.S_ISDIR(os.stat(directory).st_mode)
    except OSError as failure:
        raise OSError(failure.errno, failure.strerror, os.fsdecode(directory)) from None
    if not enterable:
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fsdecode(directory))
    if code == errno.EACCES and not os.access(directory, os.X_OK):
        raise OSError(code, os.strerror(code), os.fsdecode(directory))
    raise OSError(code, os.strerror(code), os.fsdecode(program))


def safe_descriptor(fd: int) -> int:
    """The same open file on a descriptor above 2, close-on-exec; the original is closed if moved.

    The file actions of a launch write 0, 1 and 2 one after the other: a source among them would be
    overwritten before its turn.
    """
    if fd >= _FIRST_CLOSED_FD:
        return fd
    import fcntl

    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_CLOSED_FD)
    os.close(fd)
    return moved
