"""`shoal agent`: talk to an agent, list agents and sessions; the agents' part of `shoal config`.

`chat` streams what the agent says to stdout; tool calls, approvals and questions go to the
terminal. Ctrl-C cancels the turn.

Failure: exit 69 when no router serves the endpoint; the router's own message for what it refuses.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from ipc.client import find_token
from ipc.client.agent import AgentClient
from ipc.jsonrpc import RpcError
from supervisor.cli.call import Call
from supervisor.cli.failure import Exit, Failure
from supervisor.cli.output import one_line
from supervisor.paths import resolve

DIM: Final = "2"
BOLD: Final = "1"
_DECISIONS: Final = {"y": "allow_once", "a": "allow_always", "n": "reject", "e": "reject_with_edit"}
_FORM: Final[dict[str, Any]] = {"elicitation": {"form": {}}}


@contextlib.contextmanager
def _client(call: Call) -> Iterator[AgentClient]:
    """An initialized connection to the agent endpoint of the chosen data directory."""
    paths = resolve(call.environ, call.config, state=call.text("state_dir"))
    with AgentClient.connect(paths.agent_socket.absolute()) as client:
        token = find_token(call.environ, call.text("token_file"))
        more: dict[str, Any] = {} if token is None else {"auth_token": token}
        client.initialize(clientCapabilities=_FORM, **more)
        yield client


# --- chat ---------------------------------------------------------------------------------------


class Conversation:
    """What a chat shows of its turns, and how it asks the person."""

    def __init__(self, call: Call, client: AgentClient, session: str) -> None:
        self._out = call.out
        self._client = client
        self._session = session
        self._line_open = False

    def update(self, update: dict[str, Any]) -> None:
        match update.get("type"):
            case "agent_message_chunk":
                self._out.text(update["text"])
                self._line_open = not update["text"].endswith("\n")
                self._out.flush()
            case "tool_call":
                shown = msgspec.json.encode(update["raw_input"]).decode()
                self._aside(f"» {update['name']} {shown}")
            case "tool_result" if update.get("is_error"):
                self._aside(f"! {one_line(update['raw_output'])}")
            case "plan":
                for entry in update["entries"]:
                    self._aside(f"[{entry['status']}] {entry['content']}")
            case "history_trimmed":
                self._aside(f"({update['dropped_turns']} earlier turns left the context)")
            case "approval_request":
                self._approve(update)

    def _aside(self, text: str) -> None:
        """A line about the turn, on stderr, apart from what the agent says."""
        if self._line_open:
            self._out.line()
            self._line_open = False
        self._out.note(self._out.paint(text, DIM))

    def _approve(self, request: dict[str, Any]) -> None:
        self._aside(f"? {request['tool_name']}: {request['arguments_summary']}")
        word = _ask("allow? [y]es, [a]lways, [n]o, [e]dit: ").strip().lower()[:1]
        params: dict[str, Any] = {
            "session_id": self._session,
            "request_id": request["request_id"],
            "decision": _DECISIONS.get(word, "reject"),
        }
        if word == "e":
            params["replacement"] = _ask("instead: ")
        self._client.send("session/approve", params)

    def question(self, question: dict[str, Any]) -> dict[str, Any]:
        """Ask what the agent asks; the answer of the form."""
        self._aside(f"? {question['message']}")
        [(name, field)] = question["requestedSchema"]["properties"].items()
        options = field.get("oneOf") or field.get("items", {}).get("anyOf") or []
        for number, option in enumerate(options, 1):
            self._aside(f"  {number}. {option['title']}")
        text = _ask("answer (empty declines): ").strip()
        if not text:
            return {"action": "decline"}
        if not options:
            return {"action": "accept", "content": {name: text}}
        chosen = [
            options[int(word) - 1]["const"]
            for word in text.replace(",", " ").split()
            if word.isdecimal() and 1 <= int(word) <= len(options)
        ]
        if not chosen:
            return {"action": "decline"}
        value: Any = chosen if name == "choices" else chosen[0]
        return {"action": "accept", "content": {name: value}}

    def turn(self, prompt: str) -> bool:
        """Run one turn; whether it did not fail."""
        params = {"session_id": self._session, "prompt": prompt}
        try:
            self._client.call("session/prompt", params)
        except KeyboardInterrupt:
            self._client.send("session/cancel", {"session_id": self._session})
            self._aside("(cancelled)")
        except RpcError as error:
            self._aside(error.message)
            return False
        if self._line_open:
            self._out.line()
            self._line_open = False
        return True


def _ask(text: str) -> str:
    """A line of the person; empty at the end of input. Asked on stderr: stdout is the text."""
    sys.stderr.write(text)
    sys.stderr.flush()
    return sys.stdin.readline().rstrip("\n")


def chat(call: Call) -> int:
    """Talk to an agent: one prompt when it is given, else one for every line of stdin."""
    alias, *words = call.operands
    with _client(call) as client:
        params: dict[str, Any] = {"agent_alias": alias}
        if call.text("session") is not None:
            params["session_id"] = call.text("session")
        if call.flag("here"):
            params["cwd"] = os.fspath(os.path.abspath(os.curdir))
        made = client.call("session/new", params)
        conversation = Conversation(call, client, made["session_id"])
        client.on_update = conversation.update
        client.on_question = conversation.question
        if words:
            return Exit.SUCCESS if conversation.turn(" ".join(words)) else Exit.FAILED
        interactive = sys.stdin.isatty()
        if interactive:
            call.out.note(f"session {made['session_id']} in {made['workspace_dir']}")
        ok = True
        while True:
            if interactive:
                sys.stderr.write(call.out.paint(f"{alias}> ", BOLD))
                sys.stderr.flush()
            line = sys.stdin.readline()
            if not line:
                return Exit.SUCCESS if ok else Exit.FAILED
            if line.strip():
                ok = conversation.turn(line.rstrip("\n"))


# --- listings -----------------------------------------------------------------------------------


def list_agents(call: Call) -> int:
    """Agents the caller may use."""
    with _client(call) as client:
        found = client.call("agents/status")["agents"]
    if call.out.json:
        call.out.document(found)
        return Exit.SUCCESS
    call.out.table(
        ("AGENT", "ENABLED", "LIVE", "STORED"),
        (
            (
                row["alias"],
                "yes" if row["enabled"] else "no",
                str(row["live_sessions"]),
                str(row["persisted_sessions"]),
            )
            for row in found
        ),
    )
    return Exit.SUCCESS


def status(call: Call) -> int:
    """Sessions of agents, newest activity first."""
    with _client(call) as client:
        found = client.call("session/list", {"limit": 1000})["sessions"]
    if call.out.json:
        call.out.document(found)
        return Exit.SUCCESS
    call.out.table(
        ("SESSION", "AGENT", "STATE", "MESSAGES", "ACTIVITY"),
        (
            (
                one_line(row["session_id"]),
                row.get("agent_alias", ""),
                "killed" if row["killed"] else row["state"] if row["live"] else "stored",
                str(row["message_count"]),
                row["last_activity"],
            )
            for row in found
        ),
    )
    return Exit.SUCCESS


# --- configuration ------------------------------------------------------------------------------


def config_get(call: Call) -> int:
    """One property as display text, or the whole tree as JSON."""
    params = {"prop": call.operands[0]} if call.operands else {}
    with _client(call) as client:
        found = client.call("config/get", params)
    if call.out.json:
        call.out.document(found)
    elif call.operands:
        call.out.line(found["value"])
    else:
        call.out.document(found["value"])
    return Exit.SUCCESS


def config_set(call: Call) -> int:
    """Set properties, all or none; a value is JSON when it parses as such, else text."""
    sets = []
    for assignment in call.operands:
        prop, equals, text = assignment.partition("=")
        if not equals:
            raise Failure(f"expected PROP=VALUE, not `{assignment}`")
        sets.append({"prop": prop, "value": _value(text)})
    with _client(call) as client:
        found = client.call("config/set-many", {"sets": sets})
    if call.out.json:
        call.out.document(found)
    return Exit.SUCCESS


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def config_list(call: Call) -> int:
    """Every property of the agents' tree."""
    params = {"prefix": call.operands[0]} if call.operands else {}
    with _client(call) as client:
        found = client.call("config/list", params)["entries"]
    if call.out.json:
        call.out.document(found)
        return Exit.SUCCESS
    call.out.table(
        ("PROPERTY", "TYPE", "VALUE", "MEANING"),
        (
            (row["path"], row["type_hint"], one_line(row.get("value", "")), row["description"])
            for row in found
        ),
    )
    return Exit.SUCCESS


def config_validate(call: Call) -> int:
    """Whether the agents' tree is valid; exit 1 when it is not."""
    with _client(call) as client:
        found = client.call("config/validate")
    if call.out.json:
        call.out.document(found)
    elif not found["valid"]:
        call.out.note(found["error"])
    return Exit.SUCCESS if found["valid"] else Exit.FAILED
