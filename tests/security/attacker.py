"""What the attackers of these tests have: a daemon with several principals, and programs to run.

`Fortress` is a real daemon with a policy file and tokens. Each principal has a home below
`home`, and may do there what the policy says.

Failure: a daemon that does not start fails the test.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final, Self

from blake3 import blake3

from supervisor.token_writer import create_token, revoke_token
from tests.system.daemon import Daemon, Wire

SHIELDED: Final = "agent:shielded"
NEIGHBOUR: Final = "agent:neighbour"
LEAD: Final = "agent:lead"
PLANNER: Final = "agent:planner"
TWIN: Final = "agent:twin"
PINNED: Final = "agent:pinned"

# A program that the policy knows by its content alone.
GENUINE: Final = b"#!/bin/sh\necho genuine\n"
GENUINE_HASH: Final = blake3(GENUINE).hexdigest()

POLICY: Final = """
[principal."{human}"]
fs.read = ["/**"]
fs.write = ["/**"]
fs.delete = ["/**"]
net_connect = ["*:*"]
net_listen = ["*"]
env_read = ["*"]
env_write = ["*"]
secret_use = ["*"]
session_write = true
journal_read = true
time = true
opaque = "allow"
auto_apply = "in-grant"

[principal."agent:shielded"]
fs.read = ["{home}/shielded", "{home}/shielded/**"]
fs.write = ["{home}/shielded/**"]
fs.delete = ["{home}/shielded/**"]
net_connect = ["127.0.0.1:{port}"]
env_read = ["*"]
env_write = ["*"]
session_write = true
journal_read = true
time = true
opaque = "allow"
auto_apply = "in-grant"

[principal."agent:neighbour"]
fs.read = ["{home}/neighbour", "{home}/neighbour/**"]
fs.write = ["{home}/neighbour/**"]
env_read = ["*"]
session_write = true
journal_read = true
opaque = "allow"
auto_apply = "in-grant"

[principal."agent:planner"]
fs.read = ["{home}/planner", "{home}/planner/**"]
fs.write = ["{home}/planner/**"]
session_write = true
opaque = "ask"
auto_apply = "never"
approve = ["agent:planner"]

[principal."agent:twin"]
fs.read = ["{home}/planner", "{home}/planner/**"]
fs.write = ["{home}/planner/**"]
session_write = true
opaque = "ask"
auto_apply = "never"

[principal."agent:lead"]
approve = ["agent:plan*"]
journal_read = true

[principal."agent:pinned"]
fs.read = ["{home}/pinned", "{home}/pinned/**"]
fs.write = ["{home}/pinned/**"]
env_write = ["A"]
session_write = true
proc_spawn = ["cat", "env", "{home}/tools/tool", "{hash}"]
opaque = "allow"
auto_apply = "in-grant"
"""


class Fortress(Daemon):
    """A daemon whose principals are restricted. `port` is the one TCP port that is granted."""

    def __init__(self, human: str, port: int = 9, config: str = "") -> None:
        super().__init__(config=config)
        self.port = port
        self.home = self.directory / "homes"
        for name in ("shielded", "neighbour", "planner", "pinned", "tools", "human"):
            (self.home / name).mkdir(parents=True)
        self.policy_file = self.directory / "leash.toml"
        self.policy_file.write_text(
            POLICY.format(human=human, home=self.home, port=port, hash=GENUINE_HASH)
        )
        self._options = ("--policy", str(self.policy_file))
        self.tokens: dict[str, tuple[str, str]] = {}

    def start(self) -> Self:
        return super().start()

    @property
    def store(self) -> Path:
        return self.state / "tokens.json"

    def bearer(self, principal: str, *caps: str, ttl_s: int | None = None) -> tuple[str, str]:
        """A new bearer of a principal, and its token id."""
        bearer, token = create_token(
            self.store, principal, "default", list(caps), now_ns=time.time_ns(), ttl_s=ttl_s
        )
        return bearer, token.id

    def revoke(self, token_id: str) -> None:
        revoke_token(self.store, token_id, time.time_ns())

    def attached(self, principal: str | None, session: str, *caps: str) -> Wire:
        """A connection attached as a principal; None is the local human."""
        wire = self.wire()
        params: dict[str, Any] = {"session": session}
        if principal is not None:
            key = " ".join((principal, *caps))
            if key not in self.tokens:
                self.tokens[key] = self.bearer(principal, *caps)
            params["token"] = self.tokens[key][0]
        wire.result("session.attach", params)
        return wire


def run(wire: Wire, src: str) -> Any:
    """The answer of an exec, result or error."""
    return wire.request("exec", {"src": src})
