"""The policy in force, and what it says about the principals of this daemon (chapter 50 §5, §7).

Without a policy file the local human may do everything and nobody else anything. A file that was
found or named is never replaced by that: when it cannot be read or parsed any more, the policy in
force stays.

Failure: `load` raises PolicyError and changes nothing; everything else is total.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ipc.messages import PolicyEntry
from leash.confinement import confinement
from leash.policy import Policy, PolicyError, PolicyFile, permissive_for, read
from leash.status import caps_enforced, status, this_host
from leash.verdict import Standing, may_approve

Identity = tuple[int, int, int, int]
_encode_json = msgspec.json.Encoder().encode


class Policies:
    # `_file` and `_encoded` are replaced together, by `load` alone, on the loop's thread. `path` is
    # the file in force, None while there is none; `expected` where one would be looked for.

    def __init__(self, local_human: str, expected: Path | None) -> None:
        self.local_human = local_human
        self.expected = expected
        self.path: Path | None = None
        self.generation = 0
        self._backend = this_host()
        self._file: PolicyFile = permissive_for(local_human)
        self._encoded: dict[str, bytes] = {}

    def load(self, path: Path | None) -> tuple[str, ...]:
        """Put a file in force, or the permissive policy when there never was one. Returns warnings.

        Raises PolicyError.
        """
        if path is None:
            if self.path is not None:
                raise PolicyError(f"policy {self.path} is gone")
            file = permissive_for(self.local_human)
        else:
            file = read(path)
            self.path = path
        self._file = file
        self._encoded = {}
        self.generation += 1
        return tuple(f"policy {path}: {warning}" for warning in file.warnings)

    @property
    def named(self) -> str:
        """The file to name when somebody lacks a section."""
        path = self.path or self.expected
        return "the policy file" if path is None else str(path)

    def of(self, principal: str) -> Policy | None:
        return self._file.of(principal)

    def standing(self, principal: str, caps: Iterable[str] = ()) -> Standing:
        return Standing(principal, self._file.of(principal), tuple(caps))

    def hint(self, principal: str) -> str:
        """How to give a principal a policy."""
        return f'no policy section for {principal}: add [principal."{principal}"] to {self.named}'

    def entry(self, principal: str) -> PolicyEntry:
        """The policy of a principal as workers get it."""
        data = self._encoded.get(principal)
        if data is None:
            policy = self._file.of(principal)
            data = b"" if policy is None else _encode_json(policy.as_json())
            self._encoded[principal] = data
        return PolicyEntry(principal, data, "" if data else self.hint(principal))

    # -- approving ---------------------------------------------------------------------------------

    def may_approve(self, principal: str, caps: Iterable[str], owner: str) -> bool:
        """Whether a caller may approve the plans of `owner`. The local human may approve all, but a
        token with caps for the same principal none."""
        if principal == self.local_human:
            return not tuple(caps)
        return may_approve(self.standing(principal), owner, local_human=False)

    def approves(self, principal: str, caps: Iterable[str]) -> bool:
        """Whether a caller may approve anybody's plans at all."""
        return bool(self.approve_patterns(principal, caps))

    def approvers(self, owner: str) -> list[str]:
        """Everybody who may approve plans of `owner`, the local human first."""
        others = [
            principal
            for principal in self._file.policies
            if principal != self.local_human and self.may_approve(principal, (), owner)
        ]
        return [self.local_human, *others]

    def approves_everybody(self, principal: str) -> bool:
        policy = self._file.of(principal)
        return policy is not None and "*" in policy.approve

    def approve_patterns(self, principal: str, caps: Iterable[str]) -> list[str]:
        """What `caps.approve` of an attachment lists."""
        if principal == self.local_human:
            return [] if tuple(caps) else ["*"]
        policy = self._file.of(principal)
        return [] if policy is None else list(policy.approve)

    # -- enforcement -------------------------------------------------------------------------------

    def caps_enforced(self, principal: str, caps: Iterable[str] = ()) -> bool:
        """Whether the operating system confines this principal's work."""
        return caps_enforced(confinement(self.standing(principal, caps)), self._backend)

    def sandbox_status(self, principal: str, caps: Iterable[str] = ()) -> dict[str, Any]:
        """What of it is confined, and how (chapter 50 §9.11)."""
        return status(confinement(self.standing(principal, caps)), self._backend)


__all__ = ["Policies", "PolicyError"]
