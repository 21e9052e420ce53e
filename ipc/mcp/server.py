"""The facade as a whole: lines in, kernel calls, lines out (chapter 80).

Failure: `serve` raises RpcError or ClientError when the first attachment fails, Oversize for a line
above 16 MiB, OSError when stdout is gone. Everything else is an answer.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from ipc.framing import LineFramer
from ipc.jsonrpc import RpcError
from ipc.mcp import frames, listing, text, tools, uris
from ipc.mcp.frames import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, McpError, Request
from ipc.mcp.lanes import Lane, Lanes, Work
from ipc.mcp.link import Link, Target, error_object, kernel_error_text
from ipc.mcp.streams import Output, read_all
from ipc.mcp.subscriptions import Subscriptions

PROTOCOL: Final = "2025-06-18"
INSTRUCTIONS: Final = (
    "One long-lived shell session. Read structuredContent; the text may be cut. Keep references "
    "(out:N) and read branches with shoal_get or their shoal:// address instead of running again. "
    "Never repeat an effect whose answer was lost before looking at shoal_journal. Close terminals."
)


class Oversize(Exception):
    """A line of stdin passed the limit; it has been answered."""

    def __init__(self) -> None:
        super().__init__(frames.OVERSIZE)


async def serve(
    target: Target,
    version: str,
    log: Callable[[str], None],
    *,
    debug: bool = False,
    stdin: int = 0,
    stdout: int = 1,
) -> None:
    """Attach, then answer what comes from `stdin` until its end."""
    server = Server(target, version, log, Output(stdout), debug=debug)
    try:
        await server.link.open()
        server.start()
        await _until_failure(server, stdin)
    finally:
        await server.close()


async def _until_failure(server: Server, stdin: int) -> None:
    reading = asyncio.ensure_future(server.read(stdin))
    try:
        await asyncio.wait({reading, server.failed}, return_when=asyncio.FIRST_COMPLETED)
        if server.failed.done():
            server.failed.result()
        reading.result()
    finally:
        reading.cancel()


class Server:
    # `failed` gets the failure that ends everything, if there is one.
    def __init__(
        self,
        target: Target,
        version: str,
        log: Callable[[str], None],
        output: Output,
        *,
        debug: bool = False,
    ) -> None:
        self.link = Link(target, log)
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._version = version
        self._log = log
        self._debug = debug
        self._output = output
        self._framer = LineFramer()
        self._pager = listing.Pager()
        self._target = target
        self._methods: dict[str, Callable[[Lane, Any], Awaitable[Any]]] = {
            "initialize": self._initialize,
            "ping": self._ping,
            "tools/list": self._tools_list,
            "tools/call": self._tools_call,
            "resources/list": self._resources_list,
            "resources/templates/list": self._templates_list,
            "resources/read": self._resources_read,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }

    def start(self) -> None:
        self._subscriptions = Subscriptions(self._target, self._write, self._log)
        self._lanes = Lanes(self._answer)

    async def close(self) -> None:
        if hasattr(self, "_lanes"):
            await self._lanes.close()
            await self._subscriptions.close()
        await self.link.close()

    async def read(self, stdin: int) -> None:
        await read_all(stdin, self._feed)
        rest = self._framer.take()
        if rest:
            await self._line(rest)
        await self._lanes.finish()

    async def _feed(self, block: bytes) -> None:
        lines, overflow = self._framer.feed(block)
        for line in lines:
            await self._line(line)
        if overflow is not None:
            error = frames.parse_error(frames.OVERSIZE)
            await self._write(frames.error_line(b"null", error))
            raise Oversize

    async def _line(self, line: bytes) -> None:
        try:
            request = frames.read_line(line)
        except frames.BadFrame as bad:
            await self._write(frames.error_line(bad.id, bad.error))
            return
        if request is None:
            return
        if request.id is None:
            if request.method == "notifications/cancelled" and isinstance(request.params, dict):
                self._lanes.cancel(request.params.get("requestId"))
            return
        await self._lanes.accept(_lane_of(request), Work(request.id, request))

    async def _write(self, line: bytes, still: Callable[[], bool] = lambda: True) -> None:
        try:
            await self._output.write(line, still)
        except OSError as error:
            if not self.failed.done():
                self.failed.set_exception(error)

    async def _answer(self, lane: Lane, work: Work) -> None:
        """Run one request and answer it."""
        try:
            result = await self._run(lane, work.request)
            line = frames.result_line(work.id, result)
        except McpError as error:
            line = frames.error_line(work.id, error)
        except RpcError as error:
            content = error_object(error)
            failure = McpError(INVALID_PARAMS, kernel_error_text(error), content)
            line = frames.error_line(work.id, failure)
        except Exception:  # noqa: BLE001 - the client gets an answer, stderr gets the reason
            for each in traceback.format_exc().splitlines():
                self._log(each)
            line = frames.error_line(work.id, McpError(INTERNAL_ERROR, "internal error"))
        await self._write(line, lambda: not work.cancelled)

    async def _run(self, lane: Lane, request: Request) -> Any:
        method = self._methods.get(request.method)
        if method is None:
            raise McpError(METHOD_NOT_FOUND, "method not found", {"method": request.method})
        return await method(lane, request.params)

    async def _call(self, lane: Lane, method: str, params: Any) -> Any:
        if lane is Lane.CONTROL:
            return await self._subscriptions.call(method, params)
        return await self.link.call(method, params)

    async def _initialize(self, _lane: Lane, params: Any) -> Any:
        if self._debug:
            asked = params if isinstance(params, dict) else {}
            about = {key: asked.get(key) for key in ("clientInfo", "capabilities")}
            self._log(f"debug: client {msgspec.json.encode(about).decode()}")
        return {
            "protocolVersion": PROTOCOL,
            "capabilities": {
                "tools": {"listChanged": False},
                "resources": {"subscribe": True, "listChanged": False},
            },
            "serverInfo": {"name": "shoal-mcp", "version": self._version},
            "instructions": INSTRUCTIONS,
        }

    async def _ping(self, _lane: Lane, _params: Any) -> Any:
        return {}

    async def _tools_list(self, _lane: Lane, _params: Any) -> Any:
        return {"tools": [tool.entry() for tool in tools.TOOLS]}

    async def _tools_call(self, lane: Lane, params: Any) -> Any:
        method, arguments = tools.prepare(params)
        try:
            return text.tool_result(await self._call(lane, method, arguments))
        except RpcError as error:
            return text.tool_error(error_object(error))

    async def _resources_list(self, lane: Lane, params: Any) -> Any:
        start = self._pager.start(params.get("cursor") if isinstance(params, dict) else None)
        entries = listing.standing()
        for method, where, member, what in listing.LISTED:
            try:
                rows = await self._call(lane, method, {})
            except (RpcError, McpError):
                continue
            entries += listing.rows_of(rows, where, member, what)
        return self._pager.page(entries, start)

    async def _templates_list(self, _lane: Lane, _params: Any) -> Any:
        return {"resourceTemplates": listing.templates()}

    async def _resources_read(self, lane: Lane, params: Any) -> Any:
        uri = _uri(params, "resources/read requires uri")
        read = uris.read_of(uri)
        result = await self._call(lane, read.method, read.params)
        if read.then is not None and isinstance(result, dict) and result.get("result_ref"):
            wanted = {"ref": result["result_ref"], **read.then}
            result = await self._call(lane, "value.get", wanted)
        return listing.read_result(uri, result)

    async def _subscribe(self, _lane: Lane, params: Any) -> Any:
        await self._subscriptions.subscribe(_uri(params, "resources/subscribe requires uri"))
        return {}

    async def _unsubscribe(self, _lane: Lane, params: Any) -> Any:
        await self._subscriptions.unsubscribe(_uri(params, "resources/unsubscribe requires uri"))
        return {}


def _uri(params: Any, missing: str) -> str:
    uri = params.get("uri") if isinstance(params, dict) else None
    if not isinstance(uri, str):
        raise McpError(INVALID_PARAMS, missing)
    return uri


def _lane_of(request: Request) -> Lane:
    if request.method in ("resources/read", "resources/list"):
        return Lane.SESSION
    tool = tools.named(request.params) if request.method == "tools/call" else None
    if tool is None or tool.name == "shoal_cancel":
        return Lane.CONTROL
    return Lane.TERMINAL if tool.terminal else Lane.SESSION
