"""Values as stored bytes: pickles in which what is shared keeps its name.

Only a worker of the same session reads the bytes back. Plain values go through the C pickler at
full speed; the few types that mean more than their content are handled here:

- variables that closures share, their code, and the scopes of modules become the names that a
  `Shelf` gives them, or copies in a value that stands alone (a transcript result);
- content-addressed bytes keep their hash and get the store of the new worker to load from;
- a secret keeps its name only and reads its material again when it is used;
- streams and running tasks have no stored form.

A stored form that refers to content of the store begins with a list of those hashes, so that who
keeps it need not look inside.

Failure: `StoredForm.of` gives None for a value without a stored form; `Reader.read` raises whatever
damaged bytes lead to.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from worker.errors import raised
from worker.evaluate.callables import Closure, Command
from worker.evaluate.revive import StoredCode, callable_of
from worker.evaluate.scopes import Cell, Scope
from worker.evaluate.tasks import Task
from worker.values.types import LazyBytes, Secret, Value

PROTOCOL: Final = 5
# A value larger than this is not kept; it is the most that the journal keeps of one output, too.
STORED_BYTES_MAX: Final = 256 << 20

# Types that mean nothing but their content: the C pickler needs no help with them.
PLAIN: Final = frozenset((type(None), bool, int, float, str, bytes))
# The beginning of content that is stored with a value; a longer one is read again.
PREVIEW_BYTES_STORED: Final = 64 * 1024
_WITH_CONTENT: Final = b"B"
_COUNT_BYTES: Final = 4
_HASH_BYTES: Final = 32
_UNPICKLABLE: Final = (
    pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError, ImportError,
    OverflowError,
)  # fmt: skip

LoadContent = Callable[[str, int, int | None], bytes]
ReadSecret = Callable[[str], bytes | None]


class Shelf(Protocol):
    """Who names what stored values share. `root` is the session's own scope."""

    @property
    def root(self) -> Scope: ...

    def number_of(self, item: Cell | StoredCode | Scope) -> int: ...

    def code_of(self, value: Closure | Command) -> tuple[StoredCode, tuple[Cell, ...]]: ...

    def captured(self, number: int) -> Cell: ...

    def code(self, number: int) -> StoredCode: ...

    def scope(self, number: int) -> Scope: ...


class StoredForm(NamedTuple):
    """`links` are the shared things the bytes name, `content` the hashes they refer to."""

    data: bytes
    links: frozenset[Any] = frozenset()
    content: frozenset[str] = frozenset()

    @classmethod
    def of(cls, value: Any, shelf: Shelf, *, alone: bool = False) -> StoredForm | None:
        """The stored form of a value, None when it has none. `alone`: it shares nothing."""
        if type(value) in PLAIN:
            data = pickle.dumps(value, PROTOCOL)
            return cls(data) if len(data) <= STORED_BYTES_MAX else None
        writer = _Writer(shelf, alone)
        try:
            return writer.write(value)
        except _UNPICKLABLE:
            return None


def content_of(data: bytes) -> list[str]:
    """The hashes that stored bytes refer to."""
    if data[:1] != _WITH_CONTENT:
        return []
    start = 1 + _COUNT_BYTES
    count = int.from_bytes(data[1:start])
    return [
        data[at : at + _HASH_BYTES].hex()
        for at in range(start, start + count * _HASH_BYTES, _HASH_BYTES)
    ]


# -- names in the pickles; the reader puts its own functions in their place ------------------------


def captured(number: int) -> Cell:
    raise AssertionError("resolved by the reader")


def code(number: int) -> StoredCode:
    raise AssertionError("resolved by the reader")


def scope(number: int) -> Scope:
    raise AssertionError("resolved by the reader")


def root() -> Scope:
    raise AssertionError("resolved by the reader")


def content(
    digest: str, length: int, preview: bytes, truncated: bool, preview_length: int
) -> LazyBytes:
    raise AssertionError("resolved by the reader")


def secret(name: str) -> Secret:
    raise AssertionError("resolved by the reader")


def callable_(code: StoredCode, cells: tuple[Cell, ...]) -> Closure | Command:
    return callable_of(code, cells)


def lone_code(
    kind: str, node: bytes, src: str | None, names: tuple[str, ...], root: Scope
) -> StoredCode:
    return StoredCode(kind, node, src, names, root)


def lone_cell(name: str) -> Cell:
    return Cell(name)


def fill_cell(cell: Cell, state: tuple[Value, bool]) -> None:
    cell.v, cell.mutable = state


def finished_task(number: int, description: str, value: Value) -> Task:
    return Task.finished_with(number, description, value)


class _Writer(pickle.Pickler):
    def __init__(self, shelf: Shelf, alone: bool) -> None:
        self._buffer = io.BytesIO()
        super().__init__(self._buffer, PROTOCOL)
        self._shelf = shelf
        self._alone = alone
        self._links: set[Any] = set()
        self._content: dict[str, None] = {}

    def write(self, value: Any) -> StoredForm | None:
        self.dump(value)
        if self._buffer.tell() > STORED_BYTES_MAX:
            return None
        data = self._buffer.getvalue()
        if self._content:
            hashes = b"".join(bytes.fromhex(name) for name in self._content)
            count = len(self._content).to_bytes(_COUNT_BYTES)
            data = _WITH_CONTENT + count + hashes + data
        return StoredForm(data, frozenset(self._links), frozenset(self._content))

    def reducer_override(self, item: Any) -> Any:
        handler = _HANDLERS.get(type(item))
        return NotImplemented if handler is None else handler(self, item)

    def cell(self, item: Cell) -> Any:
        if self._alone:
            # The state comes after the object, so that a closure may capture itself.
            return lone_cell, (item.name,), (item.v, item.mutable), None, None, fill_cell
        self._links.add(item)
        return captured, (self._shelf.number_of(item),)

    def callable(self, item: Closure | Command) -> Any:
        return callable_, self._shelf.code_of(item)

    def stored_code(self, item: StoredCode) -> Any:
        if self._alone:
            return lone_code, (item.kind, item.node, item.src, item.names, item.root)
        self._links.add(item)
        return code, (self._shelf.number_of(item),)

    def scope(self, item: Scope) -> Any:
        if item is self._shelf.root:
            return root, ()
        if self._alone:
            return Scope, ()
        self._links.add(item)
        return scope, (self._shelf.number_of(item),)

    def lazy_bytes(self, item: LazyBytes) -> Any:
        self._content[item.hash] = None
        whole = item.preview_length <= PREVIEW_BYTES_STORED
        preview = item.preview if whole else b""
        return content, (item.hash, item.length, preview, item.truncated, item.preview_length)

    def secret(self, item: Secret) -> Any:
        return secret, (item.name,)

    def task(self, item: Task) -> Any:
        if not item.done or item.error is not None:
            raise pickle.PicklingError("a running task")
        return finished_task, (item.id, item.description, item.value)


_HANDLERS: Final[dict[type, Callable[[_Writer, Any], Any]]] = {
    Cell: _Writer.cell,
    Closure: _Writer.callable,
    Command: _Writer.callable,
    StoredCode: _Writer.stored_code,
    Scope: _Writer.scope,
    LazyBytes: _Writer.lazy_bytes,
    Secret: _Writer.secret,
    Task: _Writer.task,
}


class Reader:
    """Reads stored forms in one worker. `load_content` and `read_secret` are the services of its
    session, None where it has none."""

    def __init__(
        self,
        shelf: Shelf,
        load_content: LoadContent | None = None,
        read_secret: ReadSecret | None = None,
    ) -> None:
        self._load_content = load_content
        self._read_secret = read_secret
        self._names: dict[str, Any] = {
            "captured": shelf.captured,
            "code": shelf.code,
            "scope": shelf.scope,
            "root": lambda: shelf.root,
            "content": self._lazy_bytes,
            "secret": self._secret,
        }

    def read(self, data: bytes) -> Value:
        if data[:1] == _WITH_CONTENT:
            count = int.from_bytes(data[1 : 1 + _COUNT_BYTES])
            data = data[1 + _COUNT_BYTES + count * _HASH_BYTES :]
        return _Unpickler(io.BytesIO(data), self._names).load()

    def _lazy_bytes(
        self, digest: str, length: int, preview: bytes, truncated: bool, preview_length: int
    ) -> LazyBytes:
        load = self._load_content
        if load is None:
            return LazyBytes(digest, length, preview, truncated)

        def piece(offset: int, count: int | None) -> bytes:
            return load(digest, offset, count)

        if len(preview) < preview_length:
            return LazyBytes.without_preview(digest, length, preview_length, truncated, piece)
        return LazyBytes(digest, length, preview, truncated, piece)

    def _secret(self, name: str) -> Secret:
        read = self._read_secret

        def material() -> str:
            found = None if read is None else read(name)
            if found is None:
                raise raised("not_found", f"secret `{name}` not found")
            return found.decode()

        return Secret(name, read=material)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, names: dict[str, Any]) -> None:
        super().__init__(file)
        self._names = names

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__:
            return self._names.get(name) or globals()[name]
        return super().find_class(module, name)
