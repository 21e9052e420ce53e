"""Tool constraints and versions: what satisfies what, which is higher (chapter 41 §B2.3).

Pure values. A constraint is a text with a meaning only by its shape: empty or `*` is anything,
`latest` anything without looking at versions, dotted integers a numeric prefix, every other text a
raw prefix.

Failure: none; every text is a constraint and every text a version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

ConstraintKind = Literal["any", "latest", "numeric", "raw"]

UNKNOWN: Final = "unknown"

_NUMBERS: Final = re.compile(r"v?(\d+(?:\.\d+)*)\Z", re.ASCII)
_RELEASE: Final = re.compile(r"\d+(?:\.\d+)*", re.ASCII)
_PRE_RELEASE: Final = re.compile(r"[-+]")


@dataclass(frozen=True, slots=True)
class Constraint:
    """`numbers` of a numeric prefix, `text` of a raw one."""

    kind: ConstraintKind
    numbers: tuple[int, ...] = ()
    text: str = ""

    @classmethod
    def parse(cls, text: str) -> Constraint:
        text = text.strip()
        if text in ("", "*"):
            return cls("any")
        if text == "latest":
            return cls("latest")
        numbers = _NUMBERS.match(text)
        if numbers:
            return cls("numeric", tuple(int(part) for part in numbers[1].split(".")))
        return cls("raw", text=text)

    def __str__(self) -> str:
        if self.kind == "any":
            return "*"
        if self.kind == "latest":
            return "latest"
        return self.text or ".".join(map(str, self.numbers))

    @property
    def needs_version(self) -> bool:
        """Whether an unknown version can never satisfy it."""
        return self.kind in ("numeric", "raw")

    def accepts(self, version: Version) -> bool:
        if self.kind == "numeric":
            return version.numbers[: len(self.numbers)] == self.numbers
        if self.kind == "raw":
            return version.known and version.text.startswith(self.text)
        return True

    def compatible(self, other: Constraint) -> bool:
        """Whether two scopes may ask for both at once."""
        if not (self.needs_version and other.needs_version):
            return True
        if self.kind != other.kind:
            return False
        if self.kind == "numeric":
            shared = min(len(self.numbers), len(other.numbers))
            return self.numbers[:shared] == other.numbers[:shared]
        return self.text.startswith(other.text) or other.text.startswith(self.text)

    @property
    def _specificity(self) -> tuple[int, int]:
        if self.kind == "any":
            return (0, 0)
        if self.kind == "latest":
            return (1, 0)
        return (2, len(self.numbers) or len(self.text))

    def more_specific_than(self, other: Constraint) -> bool:
        return self._specificity > other._specificity


@dataclass(frozen=True, slots=True)
class Version:
    """A version text; `numbers` are its leading dotted integers, empty when it has none."""

    text: str
    numbers: tuple[int, ...]
    pre_release: bool

    @classmethod
    def parse(cls, text: str | None) -> Version:
        if text is None or text == UNKNOWN:
            return cls(UNKNOWN, (), False)
        plain = text.removeprefix("v")
        release, *rest = _PRE_RELEASE.split(plain, maxsplit=1)
        found = _RELEASE.match(release)
        numbers = tuple(int(part) for part in found[0].split(".")) if found else ()
        return cls(plain, numbers, bool(rest))

    @property
    def known(self) -> bool:
        return self.text != UNKNOWN

    @property
    def order(self) -> tuple[int, tuple[int, ...], bool, str]:
        """Sorts unknown below text below numbers; missing numbers are zeros."""
        if not self.known:
            return (0, (), False, "")
        if not self.numbers:
            return (1, (), False, self.text)
        numbers = self.numbers
        while numbers and numbers[-1] == 0:
            numbers = numbers[:-1]
        return (2, numbers, not self.pre_release, self.text if self.pre_release else "")

    def __str__(self) -> str:
        return self.text
