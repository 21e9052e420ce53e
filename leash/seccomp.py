"""System calls a confined thread may not make: those that reach past Landlock.

Landlock holds files, ports, signals and tracing. What is left are calls that act on any process of
the same user by its number (limits, priorities, scheduling), keys that all processes of a user
share, ways to a TCP peer that Landlock does not see (other protocols that speak TCP, data sent with
the first packet), and calls that ordinary programs never make or can do without. The filter refuses
these and lets everything else through; a thread's own limits and priority stay its own business.

Failure: OSError when the kernel refuses the filter. On a machine whose call numbers are not listed
here nothing is filtered, and `available` says so. What is refused fails with the errors a kernel
without it gives: EPERM, EPROTONOSUPPORT for a protocol, EOPNOTSUPP for data with the first packet.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from dataclasses import dataclass
from typing import Any, Final

_PR_SET_SECCOMP: Final = 22
_SECCOMP_MODE_FILTER: Final = 2
_ALLOW: Final = 0x7FFF0000
_ERROR: Final = 0x00050000
_REFUSE: Final = _ERROR | errno.EPERM
_NO_PROTOCOL: Final = _ERROR | errno.EPROTONOSUPPORT
_NO_OPERATION: Final = _ERROR | errno.EOPNOTSUPP

# Classic BPF: load a word of the call's data, jump by the word, return.
_LOAD: Final = 0x20
_JUMP_EQUAL: Final = 0x15
_JUMP_GREATER_EQUAL: Final = 0x35
_JUMP_BITS: Final = 0x45
_RETURN: Final = 0x06
_INSTRUCTION: Final = struct.Struct("=HBBI")

# Where things are in the data of a call; arguments are 64 bits, low half first.
_NUMBER_AT: Final = 0
_ARCHITECTURE_AT: Final = 4
_ARGUMENTS_AT: Final = 16
_ARGUMENT_BYTES: Final = 8
_WORD_BYTES: Final = 4
# Calls of the 32-bit interface of x86-64 have this bit in their number.
_FOREIGN_NUMBERS: Final = 0x40000000


@dataclass(frozen=True, slots=True)
class _Machine:
    architecture: int
    numbers: dict[str, int]


_MACHINES: Final = {
    "x86_64": _Machine(
        0xC000003E,
        {
            "prlimit64": 302, "setpriority": 141, "ioprio_set": 251, "add_key": 248,
            "request_key": 249, "keyctl": 250, "bpf": 321, "perf_event_open": 298,
            "open_by_handle_at": 304, "userfaultfd": 323, "io_uring_setup": 425,
            "sched_setparam": 142, "sched_setscheduler": 144, "sched_setaffinity": 203,
            "sched_setattr": 314, "socket": 41, "sendto": 44, "sendmsg": 46, "sendmmsg": 307,
        },
    ),
    "aarch64": _Machine(
        0xC00000B7,
        {
            "prlimit64": 261, "setpriority": 140, "ioprio_set": 30, "add_key": 217,
            "request_key": 218, "keyctl": 219, "bpf": 280, "perf_event_open": 241,
            "open_by_handle_at": 265, "userfaultfd": 282, "io_uring_setup": 425,
            "sched_setparam": 118, "sched_setscheduler": 119, "sched_setaffinity": 122,
            "sched_setattr": 274, "socket": 198, "sendto": 206, "sendmsg": 211, "sendmmsg": 269,
        },
    ),
}  # fmt: skip

# Calls refused whatever their arguments. What a ring of I/O does is seen by no filter.
_ALWAYS: Final = (
    "add_key", "request_key", "keyctl", "bpf", "perf_event_open", "open_by_handle_at",
    "userfaultfd", "io_uring_setup",
)  # fmt: skip
# Calls about the process that their first argument names, 0 for the caller.
_OF_A_PROCESS: Final = (
    "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr",
)  # fmt: skip
# Where the flags of a sending call are.
_SENDING: Final = {"sendto": 3, "sendmsg": 2, "sendmmsg": 3}
_MSG_FASTOPEN: Final = 0x20000000
# A family and protocols whose sockets connect by TCP without being TCP sockets.
_AF_SMC: Final = 43
_IPPROTO_SMC: Final = 256
_IPPROTO_MPTCP: Final = 262
_PRIO_PROCESS: Final = 0
_IOPRIO_WHO_PROCESS: Final = 1


_prctl: Final[Any] = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)


def available() -> bool:
    return sys.platform == "linux" and os.uname().machine in _MACHINES


def restrict() -> None:
    """Filter the calls of this thread and what it starts. It must have no_new_privs."""
    if not available():
        return
    if _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _HEADER, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"seccomp: {os.strerror(code)}")


def _program(machine: _Machine) -> bytes:
    numbers = machine.numbers
    code = [
        _load(_ARCHITECTURE_AT),
        _instruction(_JUMP_EQUAL, 1, 0, machine.architecture),
        _return(_REFUSE),
        _load(_NUMBER_AT),
        _instruction(_JUMP_GREATER_EQUAL, 0, 1, _FOREIGN_NUMBERS),
        _return(_REFUSE),
    ]
    for name in _ALWAYS:
        code += [_instruction(_JUMP_EQUAL, 0, 1, numbers[name]), _return(_REFUSE)]
    # Of itself everything; of others reading the limits.
    code += _block(
        numbers["prlimit64"],
        [
            _load(_argument(0)), _instruction(_JUMP_EQUAL, 4, 0, 0),
            _load(_argument(2)), _instruction(_JUMP_EQUAL, 0, 3, 0),
            _load(_argument(2) + _WORD_BYTES), _instruction(_JUMP_EQUAL, 0, 1, 0),
            _return(_ALLOW), _return(_REFUSE),
        ],
    )  # fmt: skip
    for name, itself in (("setpriority", _PRIO_PROCESS), ("ioprio_set", _IOPRIO_WHO_PROCESS)):
        code += _block(
            numbers[name],
            [
                _load(_argument(0)), _instruction(_JUMP_EQUAL, 0, 3, itself),
                _load(_argument(1)), _instruction(_JUMP_EQUAL, 0, 1, 0),
                _return(_ALLOW), _return(_REFUSE),
            ],
        )  # fmt: skip
    for name in _OF_A_PROCESS:
        code += _block(
            numbers[name],
            [
                _load(_argument(0)), _instruction(_JUMP_EQUAL, 0, 1, 0),
                _return(_ALLOW), _return(_REFUSE),
            ],
        )  # fmt: skip
    code += _block(
        numbers["socket"],
        [
            _load(_argument(0)), _instruction(_JUMP_EQUAL, 4, 0, _AF_SMC),
            _load(_argument(2)), _instruction(_JUMP_EQUAL, 2, 0, _IPPROTO_SMC),
            _instruction(_JUMP_EQUAL, 1, 0, _IPPROTO_MPTCP),
            _return(_ALLOW), _return(_NO_PROTOCOL),
        ],
    )  # fmt: skip
    for name, flags in _SENDING.items():
        code += _block(
            numbers[name],
            [
                _load(_argument(flags)), _instruction(_JUMP_BITS, 1, 0, _MSG_FASTOPEN),
                _return(_ALLOW), _return(_NO_OPERATION),
            ],
        )  # fmt: skip
    code.append(_return(_ALLOW))
    return b"".join(code)


def _block(number: int, body: list[bytes]) -> list[bytes]:
    """What decides about one call; the number is still loaded before, and again behind it."""
    return [_instruction(_JUMP_EQUAL, 0, len(body), number), *body]


def _argument(index: int) -> int:
    return _ARGUMENTS_AT + index * _ARGUMENT_BYTES


def _load(offset: int) -> bytes:
    return _instruction(_LOAD, 0, 0, offset)


def _return(action: int) -> bytes:
    return _instruction(_RETURN, 0, 0, action)


def _instruction(code: int, if_true: int, if_false: int, operand: int) -> bytes:
    return _INSTRUCTION.pack(code, if_true, if_false, operand)


# Made once: every worker is forked from a process that has it. The header is a struct sock_fprog:
# the number of instructions, and where they are.
_PROGRAM: Final = _program(_MACHINES[os.uname().machine]) if available() else b""
_BUFFER: Final = ctypes.create_string_buffer(_PROGRAM, len(_PROGRAM) + 1)
_HEADER: Final = struct.pack("@HP", len(_PROGRAM) // _INSTRUCTION.size, ctypes.addressof(_BUFFER))
