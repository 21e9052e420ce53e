"""How commands fail: exit codes, and turning every error into one of them.

Failure: these are the failures; `exit_code` and `as_error_object` never raise.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

from ipc.client import ClientError, NotReachable, RpcError
from ipc.jsonrpc import Code


class Exit(IntEnum):
    """Exit codes that mean something everywhere (chapter 81, section 2)."""

    SUCCESS = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 69
    APPROVAL = 75
    DENIED = 77
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


class Failure(Exception):
    """A command that could not do what it was asked, with the text for the user."""

    def __init__(self, message: str, code: int = Exit.FAILED, **data: Any) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class Terminated(BaseException):
    """SIGTERM arrived. No `Exception`, so that nothing takes it for a failure of the work."""


_RPC_EXITS: Final = {
    Code.PARSE_ERROR: Exit.USAGE,
    Code.LEASH_DENIED: Exit.DENIED,
    Code.AUTH_FAILED: Exit.DENIED,
    Code.APPROVAL_REQUIRED: Exit.APPROVAL,
}


def exit_code(error: Exception) -> int:
    """The exit code of a failed command."""
    if isinstance(error, RpcError):
        if error.code == Code.RAISED:
            return raised_exit_code(error.data)
        return _RPC_EXITS.get(error.code, Exit.FAILED)
    if isinstance(error, Failure):
        return error.code
    return Exit.UNREACHABLE if isinstance(error, NotReachable) else Exit.FAILED


def raised_exit_code(data: dict[str, Any]) -> int:
    """A failed command's own status when there is a usable one."""
    status = data.get("status")
    usable = data.get("code") == "cmd_failed" and isinstance(status, int) and 1 <= status <= 255
    return status if usable and isinstance(status, int) else Exit.FAILED


def as_error_object(error: Exception) -> dict[str, Any]:
    """The `error` member of `--json` output. Failures of this side carry their exit code."""
    if isinstance(error, RpcError):
        return {"code": error.code, "message": error.message, "data": error.data}
    if isinstance(error, NotReachable):
        data = {"kind": "not_reachable", "path": str(error.path)}
    elif isinstance(error, Failure):
        data = {"kind": "failed", **error.data}
    elif isinstance(error, ClientError):
        data = {"kind": "connection_lost"}
    else:
        data = {"kind": "failed"}
    return {"code": int(exit_code(error)), "message": str(error), "data": data}
