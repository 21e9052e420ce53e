"""The value types of the language (chapter 20 §1): what each is in memory.

Seven of the 24 types are plain Python objects, checked by exact type because `bool` must never act
as `int`: null is `None`, `bool`, `int` (range-checked to 64 bits by the operators), `float`, `str`
(Unicode scalar values only), `bytes`, list is `list`, record is `dict` with str keys in insertion
order. Lists and dicts are immutable by convention: nothing may change one after it became a value.
The other types are the classes below, plus `Stream` (worker.evaluate.streams), `Closure`, `Command`
(worker.evaluate.callables) and `Task` (worker.evaluate.tasks), which carry `TYPE_NAME` like these.

None of the classes defines `__eq__` for the language: equality is `worker.values.operators.equal`.
Where Python equality exists it is a convenience for tests only.

Failure: `type_name` raises TypeError for an object that is no value, which is a programming error.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any, ClassVar, Final, NamedTuple

# The closed algebra cannot be written as a useful union: streams, closures, commands and tasks live
# in other packages. `Value` marks intent; exact types are checked where they matter.
Value = Any
Record = dict[str, Value]

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
SIZE_MAX: Final = 2**64 - 1


class Span(NamedTuple):
    """Half-open range of UTF-8 byte offsets in the evaluated source."""

    start: int
    end: int


class _Missing:
    """The absence of a value, where `None` would mean the language's null."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()


@dataclass(slots=True, frozen=True)
class Path:
    """A file name as raw OS bytes, kept as a Python OS string (surrogateescape for bad UTF-8)."""

    TYPE_NAME: ClassVar[str] = "path"
    raw: str

    @property
    def display(self) -> str:
        """Lossy text: U+FFFD for every undecodable sequence."""
        return display_name(self.raw)


@dataclass(slots=True, frozen=True)
class Glob:
    """A pattern with the directory it was made in (OS string) and its hidden-files flag."""

    TYPE_NAME: ClassVar[str] = "glob"
    pattern: str
    origin: str
    hidden: bool = False


@dataclass(slots=True, frozen=True)
class Regex:
    """A compiled pattern (`engine`, see worker.values.regexes) and its source text."""

    TYPE_NAME: ClassVar[str] = "regex"
    src: str
    engine: Any = field(compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        from worker.values.regexes import compile_regex

        return (compile_regex, (self.src,))


@dataclass(slots=True, frozen=True)
class Size:
    """A byte count, 0 .. 2^64-1."""

    TYPE_NAME: ClassVar[str] = "size"
    bytes: int


@dataclass(slots=True, frozen=True)
class Duration:
    """A signed 64-bit count of nanoseconds."""

    TYPE_NAME: ClassVar[str] = "duration"
    ns: int


@dataclass(slots=True, frozen=True)
class DateTime:
    """An instant in nanoseconds since the Unix epoch (any sign) and the zone fields are read in."""

    TYPE_NAME: ClassVar[str] = "datetime"
    ns: int
    zone: tzinfo = field(compare=False)


@dataclass(slots=True, frozen=True)
class TimeOfDay:
    TYPE_NAME: ClassVar[str] = "time"
    hour: int
    minute: int
    second: int


@dataclass(slots=True, frozen=True)
class Range:
    TYPE_NAME: ClassVar[str] = "range"
    start: int
    end: int
    inclusive: bool

    def python_range(self) -> range:
        """The ints of the range, lazily; empty when the end lies before the start."""
        return range(self.start, self.end + 1 if self.inclusive else self.end)


class Table:
    """An ordered list of records with its own type name. `rows` is never changed in place."""

    __slots__ = ("rows",)
    TYPE_NAME: ClassVar[str] = "table"

    def __init__(self, rows: list[Record]) -> None:
        self.rows = rows

    def __repr__(self) -> str:
        return f"Table({self.rows!r})"


class LazyBytes:
    """Bytes kept in the content store: hash, true length, bounded preview.

    `load(offset, length)` reads a piece; `load(0, None)` everything. Absent outside a kernel
    session, where content-addressed bytes cannot arise. One that came back with its session may
    have its preview, the first `preview_length` bytes, read when it is looked at.
    """

    __slots__ = ("hash", "length", "load", "preview", "preview_length", "truncated")
    TYPE_NAME: ClassVar[str] = "bytes"

    def __init__(
        self,
        hash: str,  # noqa: A002 - the name it has everywhere
        length: int,
        preview: bytes,
        truncated: bool,
        load: Callable[[int, int | None], bytes] | None = None,
    ) -> None:
        self.hash = hash
        self.length = length
        self.preview = preview
        self.preview_length = len(preview)
        self.truncated = truncated
        self.load = load

    @classmethod
    def without_preview(
        cls,
        hash: str,  # noqa: A002 - the name it has everywhere
        length: int,
        preview_length: int,
        truncated: bool,
        load: Callable[[int, int | None], bytes],
    ) -> LazyBytes:
        found = cls(hash, length, b"", truncated, load)
        found.preview_length = preview_length
        del found.preview
        return found

    def __getattr__(self, name: str) -> Any:
        # Reached only for an unset slot.
        if name != "preview" or self.load is None:
            raise AttributeError(name)
        try:
            self.preview = self.load(0, self.preview_length)
        except OSError:
            # Content that aged out has no beginning either.
            self.preview = b""
        return self.preview

    @property
    def reference(self) -> str:
        return f"val:blake3:{self.hash}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (LazyBytes, (self.hash, self.length, self.preview, self.truncated))


@dataclass(slots=True, eq=False)
class ErrorValue:
    """A language error as a value. Changed only by `Raised.at`, before anything can see it."""

    TYPE_NAME: ClassVar[str] = "error"
    code: str
    msg: str
    hint: str | None = None
    stderr: str | None = None
    status: int | None = None
    span: Span | None = None


@dataclass(slots=True, eq=False)
class Outcome:
    """The result of one command (chapter 20 §4.3, chapter 40 §5).

    `structured` is the value supplied by a builtin or an adapter, MISSING when `out` must be
    decoded from `stdout`; `decoded` remembers that decoding. `streamed`: the bytes already went to
    a real terminal. Identity is equality.
    """

    TYPE_NAME: ClassVar[str] = "outcome"
    status: int | None
    ok: bool
    cmd: str
    stdout: bytes | LazyBytes = b""
    stderr: bytes = b""
    signal: str | None = None
    dur_ns: int = 0
    pid: int = 0
    structured: Value = MISSING
    span: Span | None = None
    streamed: bool = False
    decoded: Value = MISSING

    def __getattr__(self, name: str) -> Any:
        # Reached only for an unset slot. A builtin leaves `stdout` unset: the bytes of its value
        # are made here when somebody asks, since the text of a long listing is rarely wanted.
        if name != "stdout" or self.structured is MISSING:
            raise AttributeError(name)
        from worker.values.convert import redirect_bytes

        self.stdout = redirect_bytes(self.structured)
        return self.stdout


class Secret:
    """A name and a protected text. The text is shown by nothing; `repr` names it only.

    One that came back with its session has no text but `read`, which gets it from the secret store.
    """

    __slots__ = ("_read", "_text", "name")
    TYPE_NAME: ClassVar[str] = "secret"

    def __init__(
        self, name: str, text: str | None = None, *, read: Callable[[], str] | None = None
    ) -> None:
        self.name = name
        self._text = text
        self._read = read

    def reveal(self) -> str:
        """The material, for the one place that may send it (an HTTP header value)."""
        if self._text is None:
            assert self._read is not None, "a secret has its text or knows where it is"
            self._text = self._read()
        return self._text

    def __repr__(self) -> str:
        return f"secret({self.name})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("secret material is never serialised")


_PLAIN_NAMES: Final[dict[type, str]] = {
    type(None): "null",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
    list: "list",
    dict: "record",
}

TYPE_NAMES: Final = [
    "null", "bool", "int", "float", "str", "path", "glob", "regex", "size", "duration",
    "datetime", "time", "bytes", "list", "record", "table", "range", "stream", "error",
    "outcome", "task", "closure", "command", "secret",
]  # fmt: skip


def type_name(value: Value) -> str:
    """The language's name of a value's type, one of `TYPE_NAMES`."""
    name = _PLAIN_NAMES.get(type(value))
    if name is None:
        name = getattr(type(value), "TYPE_NAME", None)
        if name is None:
            raise TypeError(f"{type(value).__name__} is not a value of the language")
    return name


def display_name(raw: str) -> str:
    """Lossy text of an OS string."""
    if raw.isascii():
        return raw
    return os.fsencode(raw).decode("utf-8", "replace")
