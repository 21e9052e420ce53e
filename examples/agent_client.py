"""A client of the agent endpoint in plain Python: handshake, session, prompt, approval, question.

    python examples/agent_client.py SOCKET PROMPT...

Prints what the agent says, allows what it asks for once, and answers its questions with the first
choice. Nothing but the standard library is used.

Failure: exit 1 with the message of an error answer.
"""

import json
import socket
import sys
from typing import Any


class Client:
    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(path)
        self.lines = self.socket.makefile("r", encoding="utf-8")
        self.next_id = 1

    def write(self, frame: dict[str, Any]) -> None:
        self.socket.sendall(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n")

    def send(self, method: str, params: dict[str, Any]) -> int:
        number, self.next_id = self.next_id, self.next_id + 1
        self.write({"id": number, "method": method, "params": params})
        return number

    def call(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request; handle whatever comes until its answer is there."""
        number = self.send(method, params)
        for line in self.lines:
            frame = json.loads(line)
            if "method" not in frame:
                if frame["id"] != number:
                    continue  # the answer of a `session/approve`, which nobody waits for
                if "error" in frame:
                    raise SystemExit(frame["error"]["message"])
                return frame["result"]
            if "id" in frame:
                self.question(frame)
            elif frame["method"] == "session/update":
                self.update(frame["params"])
        raise SystemExit("the connection ended")

    def question(self, frame: dict[str, Any]) -> None:
        """The server asks: `elicitation/create` with a form of one property."""
        [(name, field)] = frame["params"]["requestedSchema"]["properties"].items()
        print(f"? {frame['params']['message']}")
        if name == "choices":
            value: Any = [field["items"]["anyOf"][0]["const"]]
        else:
            value = field["oneOf"][0]["const"] if name == "choice" else "yes"
        answer = {"action": "accept", "content": {name: value}}
        self.write({"id": frame["id"], "result": answer})

    def update(self, update: dict[str, Any]) -> None:
        match update["type"]:
            case "agent_message_chunk":
                print(update["text"], end="", flush=True)
            case "tool_call":
                print(f"» {update['name']} {json.dumps(update['raw_input'])}")
            case "approval_request":
                print(f"! {update['arguments_summary']}")
                self.send(
                    "session/approve",
                    {
                        "session_id": update["session_id"],
                        "request_id": update["request_id"],
                        "decision": "allow_once",
                    },
                )
            case "turn_complete":
                print(f"\n[{update['outcome']}]")


def main(path: str, *prompts: str) -> None:
    client = Client(path)
    client.call("initialize", {"protocolVersion": 1, "clientCapabilities": {"elicitation": {}}})
    session = client.call("session/new", {"agent_alias": "shell"})
    for prompt in prompts:
        client.call("session/prompt", {"session_id": session["session_id"], "prompt": prompt})


if __name__ == "__main__":
    main(*sys.argv[1:])
