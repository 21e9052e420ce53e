"""The provider kind `acp`: an external agent program, spoken to over its standard streams.

One program per live session, started with it and again with the first prompt after it ended. It
runs as a child of this worker with a minimal environment; what it asks for (files, permission) goes
through the same questions as any tool call (chapter 70 §18.4).

Failure: a program that does not start or speaks another version is RpcError `agent_unavailable`;
one that ends during a turn makes the turn failed, with its exit status.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import mimetypes
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from acp import PROTOCOL_VERSION, RequestError, connect_to_agent, image_block, text_block
from acp import schema as acp_schema

from ipc.agent_envelope import AgentCode, agent_error
from ipc.agent_events import Plan, ProviderView, Step, Text, Thought, ToolCall, ToolResult, TurnEnd
from worker.agent.turn import Refused, Turn, TurnCancelled, TurnFailed
from worker.commands.processes import TABLE, Running

if TYPE_CHECKING:
    from worker.session import Session

FRAME_BYTES_MAX: Final = 8 * 1024 * 1024
STDERR_BYTES_MAX: Final = 64 * 1024
CANCEL_GRACE_S: Final = 5.0
_ENVIRONMENT: Final = (b"PATH", b"HOME", b"USER", b"LOGNAME", b"LANG", b"LC_ALL", b"TZ", b"TMPDIR",
                       b"SHELL", b"TERM")  # fmt: skip
_STOP_REASONS: Final = {
    "end_turn": "end_turn",
    "max_tokens": "max_tokens",
    "max_turn_requests": "max_turns",
    "refusal": "refusal",
    "cancelled": "cancelled",
}
_OPTION_KINDS: Final = {
    "allow_once": "allow_once",
    "allow_always": "allow_always",
    "reject": "reject_once",
    "reject_once": "reject_once",
    "reject_with_edit": "reject_once",
}
IMAGE_BYTES_MAX: Final = 4 * 1024 * 1024


class StartOrder(msgspec.Struct):
    provider: ProviderView
    workspace: str
    external_session: str | None


class ProgramFailed(Exception):
    """The program did not come up, and why."""


def start(session: Session, params: bytes) -> bytes:
    """Serve `agent.start`. Raises RpcError."""
    order = msgspec.json.decode(params, type=StartOrder)
    try:
        program = _ready(session, order.provider, order.workspace, order.external_session)
    except ProgramFailed as failed:
        raise agent_error(AgentCode.INTERNAL_ERROR, str(failed), "agent_unavailable") from None
    return msgspec.json.encode({"session": program.external_session})


def run(turn: Turn) -> TurnEnd:
    """One prompt to the program."""
    order = turn.order
    try:
        program = _ready(turn.session, order.provider, order.workspace, order.external_session)
    except ProgramFailed as failed:
        raise TurnFailed(str(failed)) from None
    if program.external_session != order.external_session:
        turn.ask("agent.external", {"session": program.external_session})
    return program.prompt(turn)


def _ready(
    session: Session, provider: ProviderView, workspace: str, external_session: str | None
) -> Program:
    """The running program of the session, started when there is none. Raises ProgramFailed."""
    program = session.desk.program
    if program is not None and program.alive and program.command == provider.command:
        return program
    if program is not None:
        external_session = program.external_session or external_session
        program.close()
    program = Program(session, provider, workspace)
    try:
        program.open(external_session)
    except BaseException:
        program.close()
        raise
    session.desk.program = program
    return program


class Program:
    # The process with its pipes, and a loop of its own on a thread that speaks the protocol. `turn`
    # is the one whose events are forwarded; without one, updates are dropped.

    def __init__(self, session: Session, provider: ProviderView, workspace: str) -> None:
        self.session = session
        self.command = provider.command
        self.external_session = ""
        self.turn: Turn | None = None
        self._provider = provider
        self._workspace = workspace
        self._process: subprocess.Popen[bytes] | None = None
        self._running: Running | None = None
        self._loop = asyncio.new_event_loop()
        self._connection: Any = None
        self._images = False
        self._names: dict[str, str] = {}
        self._ended = threading.Event()

    @property
    def alive(self) -> bool:
        return self._process is not None and not self._ended.is_set()

    # -- start and end -----------------------------------------------------------------------------

    def open(self, external_session: str | None) -> None:
        """Start the program and shake hands. Raises ProgramFailed."""
        self._spawn()
        threading.Thread(target=self._loop.run_forever, name="acp", daemon=True).start()
        handshake = asyncio.run_coroutine_threadsafe(
            self._shake_hands(external_session), self._loop
        )
        try:
            handshake.result(self._provider.startup_s)
        except TimeoutError:
            raise ProgramFailed(
                f"{self.command[0]} did not answer within {self._provider.startup_s} s"
            ) from None
        except (RequestError, OSError, ValueError, ConnectionError) as error:
            raise ProgramFailed(f"{self.command[0]}: {self._why(error)}") from None

    def _why(self, error: BaseException) -> str:
        if self._ended.wait(0.2) and self._process is not None:
            return f"it ended with status {self._process.returncode}"
        return str(error)

    def _spawn(self) -> None:
        inherited = self.session.evaluator.env
        environment: dict[bytes, bytes] = {
            name: inherited[name] for name in _ENVIRONMENT if name in inherited
        }
        environment.update(
            (os.fsencode(name), os.fsencode(value)) for name, value in self._provider.env.items()
        )
        try:
            with TABLE.starting() as register:
                self._process = subprocess.Popen(
                    self.command,
                    cwd=self._workspace,
                    env=cast(Any, environment),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
                self._running = register(self._process.pid)
        except OSError as error:
            raise ProgramFailed(f"cannot start {self.command[0]}: {error.strerror}") from None
        threading.Thread(target=self._watch, name="acp exit", daemon=True).start()
        threading.Thread(target=self._log_errors, name="acp stderr", daemon=True).start()

    def _watch(self) -> None:
        process, running = self._process, self._running
        assert process is not None and running is not None
        process.wait()
        TABLE.reaped(running)
        self._ended.set()

    def _log_errors(self) -> None:
        """Pass on what it writes to its standard error, up to a bound; the rest is read away."""
        process = self._process
        assert process is not None and process.stderr is not None
        left = STDERR_BYTES_MAX
        while line := process.stderr.readline(4096):
            if left > 0:
                sys.stderr.write(f"acp: {line.decode('utf-8', 'replace').rstrip()}\n")
                sys.stderr.flush()
            left -= len(line)

    async def _shake_hands(self, external_session: str | None) -> None:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        reader = asyncio.StreamReader(limit=FRAME_BYTES_MAX)
        await self._loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), process.stdout
        )
        transport, protocol = await self._loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, process.stdin
        )
        writer = asyncio.StreamWriter(transport, protocol, None, self._loop)
        self._connection = connect_to_agent(cast(Any, _Client(self)), writer, reader)
        answer = await self._connection.initialize(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=acp_schema.ClientCapabilities(
                fs=acp_schema.FileSystemCapabilities(read_text_file=True, write_text_file=True),
                terminal=False,
            ),
        )
        if answer.protocol_version != 1:
            raise ValueError(f"protocol version {answer.protocol_version}")
        capabilities = answer.agent_capabilities
        prompts = capabilities.prompt_capabilities if capabilities is not None else None
        self._images = bool(prompts is not None and prompts.image)
        if external_session and capabilities is not None and capabilities.load_session:
            await self._connection.load_session(
                cwd=self._workspace, mcp_servers=[], session_id=external_session
            )
            self.external_session = external_session
            return
        made = await self._connection.new_session(cwd=self._workspace, mcp_servers=[])
        self.external_session = made.session_id

    def close(self) -> None:
        """End the program with everything it started."""
        process = self._process
        if process is not None and not self._ended.is_set():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        self._loop.call_soon_threadsafe(self._loop.stop)

    # -- a turn ------------------------------------------------------------------------------------

    def prompt(self, turn: Turn) -> TurnEnd:
        """Send the prompt and wait for its end. Raises TurnFailed or TurnCancelled."""
        self.turn = turn
        self._names.clear()
        answered = asyncio.run_coroutine_threadsafe(
            self._connection.prompt(session_id=self.external_session, prompt=self._blocks(turn)),
            self._loop,
        )
        turn.on_cancel(self._cancel)
        try:
            while True:
                try:
                    answer = answered.result(0.25)
                    break
                except TimeoutError:
                    if self._ended.is_set() and not answered.done():
                        # What it wrote last may still be on its way.
                        with contextlib.suppress(TimeoutError):
                            answer = answered.result(1.0)
                            break
                        raise self._gone(turn) from None
        except (RequestError, ConnectionError, OSError, ValueError) as error:
            if self._ended.wait(0.5):
                raise self._gone(turn) from None
            if turn.cancelled.is_set():
                raise TurnCancelled from None
            raise TurnFailed(f"agent program: {error}") from None
        finally:
            self.turn = None
        turn.check()
        return TurnEnd(_STOP_REASONS.get(str(answer.stop_reason), "end_turn"))

    def _gone(self, turn: Turn) -> Exception:
        if turn.cancelled.is_set():
            return TurnCancelled()
        status = None if self._process is None else self._process.returncode
        return TurnFailed(f"agent program {self.command[0]} ended with status {status}")

    def _cancel(self) -> None:
        asyncio.run_coroutine_threadsafe(
            self._connection.cancel(session_id=self.external_session), self._loop
        )
        self._loop.call_soon_threadsafe(
            lambda: self._loop.call_later(CANCEL_GRACE_S, self._kill_if_busy)
        )

    def _kill_if_busy(self) -> None:
        if self.turn is not None and self.turn.cancelled.is_set():
            self.close()

    def _blocks(self, turn: Turn) -> list[Any]:
        order = turn.order
        text = order.visible_prompt
        blocks: list[Any] = []
        for path in order.attachments if self._images else ():
            kind = mimetypes.guess_type(path)[0] or ""
            marker = f"[IMAGE:{path}]"
            if not kind.startswith("image/") or marker not in text:
                continue
            with contextlib.suppress(OSError), open(path, "rb") as file:
                data = file.read(IMAGE_BYTES_MAX + 1)
                if len(data) <= IMAGE_BYTES_MAX:
                    blocks.append(image_block(base64.b64encode(data).decode(), kind))
                    text = text.replace(marker, "").rstrip("\n")
        return [text_block(text), *blocks]


class _Client:
    """What the program may ask and tell."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def _turn(self) -> Turn:
        turn = self._program.turn
        if turn is None:
            raise RequestError(int(AgentCode.INTERNAL_ERROR), "no turn runs")
        return turn

    def on_connect(self, conn: Any) -> None:
        return None

    async def session_update(self, session_id: str, update: Any, **_rest: Any) -> None:
        turn = self._program.turn
        if turn is None:
            return
        match update:
            case acp_schema.AgentMessageChunk():
                turn.reporter.add(Text(_block_text(update.content)))
            case acp_schema.AgentThoughtChunk():
                turn.reporter.add(Thought(_block_text(update.content)))
            case acp_schema.ToolCallStart():
                self._started(turn, update)
            case acp_schema.ToolCallProgress():
                self._progressed(turn, update)
            case acp_schema.AgentPlanUpdate():
                turn.reporter.add(
                    Plan(
                        [
                            Step(entry.content, str(entry.status), str(entry.priority))
                            for entry in update.entries
                        ]
                    )
                )

    def _started(self, turn: Turn, update: Any) -> None:
        name = str(update.kind or update.title)
        self._program._names[update.tool_call_id] = name
        raw = update.raw_input if isinstance(update.raw_input, dict) else {"title": update.title}
        turn.reporter.add(ToolCall(update.tool_call_id, name, raw))
        if update.status in ("completed", "failed"):
            self._progressed(turn, update)

    def _progressed(self, turn: Turn, update: Any) -> None:
        names = self._program._names
        if update.status not in ("completed", "failed") or update.tool_call_id not in names:
            return
        text = "\n".join(_content_text(item) for item in update.content or ())
        turn.reporter.add(
            ToolResult(
                update.tool_call_id, names.pop(update.tool_call_id), text,
                update.status == "failed",
            )
        )  # fmt: skip

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_rest: Any
    ) -> Any:
        turn = self._turn()
        title = tool_call.title or tool_call.tool_call_id
        name = self._program._names.get(tool_call.tool_call_id) or str(tool_call.kind or title)
        cancelled = acp_schema.RequestPermissionResponse(
            outcome=acp_schema.DeniedOutcome(outcome="cancelled")
        )
        try:
            answer = await asyncio.to_thread(
                turn.ask, "agent.permission", {"tool": name, "summary": title}
            )
        except Refused:
            return cancelled
        if answer["source"] in ("timed_out", "unreachable") or turn.cancelled.is_set():
            return cancelled
        wanted = _OPTION_KINDS[answer["decision"]]
        chosen = _option(options, wanted)
        if chosen is None:
            return cancelled
        return acp_schema.RequestPermissionResponse(
            outcome=acp_schema.AllowedOutcome(outcome="selected", option_id=chosen)
        )

    async def read_text_file(
        self,
        session_id: str,
        path: str,
        line: int | None = None,
        limit: int | None = None,
        **_rest: Any,
    ) -> Any:
        await self._allowed(path, read=True)
        text = await asyncio.to_thread(_read_text, path)
        if line is not None or limit is not None:
            first = max(1, line or 1) - 1
            lines = text.splitlines(keepends=True)
            text = "".join(lines[first : None if limit is None else first + limit])
        return acp_schema.ReadTextFileResponse(content=text)

    async def write_text_file(self, session_id: str, path: str, content: str, **_rest: Any) -> Any:
        await self._allowed(path, read=False)
        await asyncio.to_thread(_write_text, path, content)
        return acp_schema.WriteTextFileResponse()

    async def _allowed(self, path: str, *, read: bool) -> None:
        """Whether policy, or a person it asks, gives the program a file. Raises RequestError."""
        turn = self._turn()
        if not os.path.isabs(path):
            raise RequestError.invalid_params({"path": "must be absolute"})
        real = await asyncio.to_thread(os.path.realpath, path)
        try:
            answer = await asyncio.to_thread(turn.ask, "agent.file", {"path": real, "read": read})
        except Refused as refused:
            raise RequestError(int(AgentCode.FORBIDDEN), str(refused)) from None
        if answer["decision"] not in ("allow_once", "allow_always"):
            raise RequestError(int(AgentCode.FORBIDDEN), "denied by policy")

    def __getattr__(self, name: str) -> Any:
        """Terminals and everything unknown are not served."""

        async def refuse(*_args: Any, **_rest: Any) -> Any:
            raise RequestError.method_not_found(name)

        if name.startswith("__"):
            raise AttributeError(name)
        return refuse


def _option(options: list[Any], kind: str) -> str | None:
    """The option of that kind; a refusal may be of either kind, an `always` needs its own."""
    for wanted in (kind, "reject_once", "reject_always"):
        for option in options:
            if str(option.kind) == wanted:
                return str(option.option_id)
    return None


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            return file.read(FRAME_BYTES_MAX)
    except OSError as error:
        raise RequestError.resource_not_found(f"{path}: {error.strerror}") from None


def _write_text(path: str, content: str) -> None:
    try:
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(content)
    except OSError as error:
        raise RequestError.invalid_params({"path": f"{path}: {error.strerror}"}) from None


def _block_text(block: Any) -> str:
    """The text of a content block; other kinds as a note."""
    if isinstance(block, acp_schema.TextContentBlock):
        return block.text
    return f"[{getattr(block, 'type', 'content')}]"


def _content_text(item: Any) -> str:
    inner = getattr(item, "content", None)
    if inner is not None:
        return _block_text(inner)
    path = getattr(item, "path", None)
    return f"[diff {path}]" if path else f"[{getattr(item, 'type', 'content')}]"
