"""Daemons with several principals: a policy file and bearer tokens, as an operator would have them.

Failure: none of its own.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from supervisor.tokens import TokenStore, digest_of
from tests.system.daemon import Daemon, Wire

LOCAL = f"uid:{os.geteuid()}"
# What an operator writes for itself beside the agents.
LOCAL_POLICY = f"""
[principal."{LOCAL}"]
opaque = "allow"
auto_apply = "in-grant"
session_write = true
journal_read = true
time = true
env_read = ["*"]
env_write = ["*"]
fs = {{ read = ["/**"], write = ["/**"], delete = ["/**"] }}
net_connect = ["*:*"]
net_listen = ["*"]
secrets = ["*"]
"""


def bearer_of(principal: str, caps: Sequence[str] = ()) -> str:
    """The bearer that `write_tokens` gives a principal with these caps."""
    raw = (principal + "|" + ",".join(caps)).encode().ljust(32, b".")[:32]
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def write_tokens(path: Path, tokens: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Put a valid token for each (principal, caps) into the store."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    TokenStore.open(path)
    content: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    key = base64.b64decode(content["key"])
    for principal, caps in tokens:
        digest = digest_of(key, bearer_of(principal, caps))
        content["tokens"].append(
            {
                "id": digest[:16],
                "principal": principal,
                "profile": "default",
                "caps": list(caps),
                "created_ns": 1,
                "expires_ns": None,
                "revoked_ns": None,
                "digest": digest,
            }
        )
    path.write_bytes(msgspec.json.encode(content))


class Realm:
    """A daemon with a policy and tokens. Use as a context manager."""

    def __init__(
        self,
        policies: Mapping[str, str],
        tokens: Sequence[tuple[str, Sequence[str]]] = (),
        config: str = "",
    ) -> None:
        self.daemon = Daemon(config=config)
        self.policy = self.daemon.directory / ".config" / "shoal" / "leash.toml"
        self.policy.parent.mkdir(parents=True, exist_ok=True)
        self.write_policy(policies)
        named = [principal for principal in policies if principal != LOCAL]
        write_tokens(
            self.daemon.state / "tokens.json",
            [*((principal, ()) for principal in named), *tokens],
        )
        self._wires: list[Wire] = []

    def write_policy(self, policies: Mapping[str, str]) -> None:
        """Replace the policy file in one step, as careful editors do."""
        text = LOCAL_POLICY + "".join(
            f'\n[principal."{principal}"]\n{body}\n'
            for principal, body in policies.items()
            if principal != LOCAL
        )
        new = self.policy.with_suffix(".new")
        new.write_text(text)
        new.replace(self.policy)

    @property
    def work(self) -> Path:
        return self.daemon.work

    def attach(self, principal: str, session: str, caps: Sequence[str] = ()) -> Wire:
        """A connection of that principal, attached to that session."""
        wire = self.daemon.wire()
        self._wires.append(wire)
        params: dict[str, Any] = {"session": session}
        if principal != LOCAL or caps:
            params["token"] = bearer_of(principal, caps)
        wire.result("session.attach", params)
        return wire

    def __enter__(self) -> Realm:
        self.daemon.start()
        return self

    def __exit__(self, *_: object) -> None:
        for wire in self._wires:
            wire.close()
        self.daemon.__exit__()
