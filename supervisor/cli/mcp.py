"""`shoal mcp`: find kernel, session and secret, and serve the facade (chapter 80, section 2).

Failure: Failure with exit 1 for every fatal error; UsageError for a session that names no socket.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from ipc.client import (
    ClientError,
    InvalidLabel,
    NotReachable,
    RpcError,
    read_token_file,
    runtime_dir,
    socket_path,
)
from ipc.mcp.link import Target, kernel_error_text
from ipc.mcp.server import Oversize, serve
from supervisor.cli.call import Call
from supervisor.cli.failure import Exit, Failure, Terminated
from supervisor.cli.options import UsageError
from supervisor.paths import expand
from supervisor.version import VERSION


def run(call: Call) -> int:
    debug = call.environ.get("SHOAL_LOG") == "debug"
    try:
        target = _target(call)
        asyncio.run(_serve(target, debug))
    except RpcError as error:
        raise Failure(kernel_error_text(error)) from error
    except NotReachable as error:
        raise Failure(str(error)) from error
    except (ClientError, Oversize) as error:
        raise Failure(str(error)) from error
    return Exit.SUCCESS


async def _serve(target: Target, debug: bool) -> None:
    """Serve until the end; SIGTERM ends it in between two steps of the loop."""
    serving = asyncio.ensure_future(serve(target, VERSION, _log, debug=debug))
    terminated = asyncio.Event()

    def terminate() -> None:
        terminated.set()
        serving.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        await serving
    except asyncio.CancelledError:
        if terminated.is_set():
            raise Terminated from None
        raise


def _log(line: str) -> None:
    sys.stderr.write(f"shoal-mcp: {line}\n")
    sys.stderr.flush()


def _target(call: Call) -> Target:
    config = call.config
    environ = call.environ
    configured = config.kernel.session
    session = (
        call.text("session")
        or environ.get("SHOAL_SESSION")
        or config.mcp.session
        or (configured if configured != "default" else None)
    )
    named = (
        call.text("socket")
        or environ.get("SHOAL_SOCKET")
        or config.mcp.socket
        or config.kernel.socket
    )
    try:
        path = socket_path(
            environ,
            explicit=expand(named, environ) if named else None,
            session=session or configured,
        )
    except InvalidLabel as error:
        raise UsageError(str(error), call.arguments.command) from error
    return Target(
        socket=path,
        session=session,
        token=_token(call),
        autostart=config.kernel.autostart and not call.flag("no_autostart"),
        check_owner=path.parent == runtime_dir(environ),
        environ=environ,
    )


def _token(call: Call) -> str | None:
    """Flag, file flag, variable, file variable, configured file; the first that is there."""
    environ = call.environ
    if call.text("token"):
        return call.text("token")
    if call.text("token_file"):
        return read_token_file(expand(str(call.text("token_file")), environ))
    if environ.get("SHOAL_TOKEN"):
        return environ["SHOAL_TOKEN"]
    file = environ.get("SHOAL_TOKEN_FILE") or call.config.mcp.token_file
    return read_token_file(expand(os.fspath(file), environ)) if file else None
