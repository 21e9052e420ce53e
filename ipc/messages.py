"""Messages between the router and its workers, on the control channel.

Every message is one MessagePack array tagged by its first element, decoded into the typed structs
below. Nothing is pickled; the router treats everything that arrives as untrusted. Large contents do
not travel inside a message: a `Content` then names a descriptor that is sent along (a sealed memfd,
or the spill file the router handed out), by its place among the frame's descriptors.

Directions: `ToWorker` is what the router sends, `FromWorker` what workers send.

Failure: `decode_from_worker` and `decode_to_worker` raise ProtocolError for anything that is no
message; the router then kills the worker, a worker then ends itself.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

PROTOCOL: Final = 1
# What the names of cells begin with that hold a binding of the session, and a transcript result.
BINDING_CELL: Final = "binding:"
RESULT_CELL: Final = "out:"
INLINE_CONTENT_BYTES_MAX: Final = 1024 * 1024


class ProtocolError(Exception):
    """Bytes on the control channel that are no message."""


class _Message(msgspec.Struct, array_like=True, gc=False):
    pass


# --- shared parts -----------------------------------------------------------------------------


class Content(_Message):
    """Bytes inline; or the `fd`-th descriptor of the frame with `length` bytes in it; or content
    that the store has already, by its `hash` (32 bytes) and length."""

    data: bytes = b""
    fd: int = -1
    length: int = 0
    hash: bytes = b""


class Budget(_Message):
    """Elision budgets in force for a caller (chapter 60 §6.1)."""

    max_bytes: int = 8192
    max_rows: int = 100
    max_items: int = 500
    max_bytes_raw: int = 4096
    hard_cap: int = 65536


class Caller(_Message):
    """Who a call runs as and how its answer is shaped; decided by the router alone."""

    principal: str
    connection: int
    tty: bool = False
    repl: bool = False
    local_human: bool = False
    # The caps of the caller's token, empty without one: they narrow what its policy grants.
    caps: list[str] = []
    budget: Budget = msgspec.field(default_factory=Budget)
    page_bytes: int = 49152
    # The tool call of an agent turn that a submission is, empty outside of turns.
    tool_call: str = ""
    # The id of the caller's token, empty without one: what it starts ends with the token.
    token: str = ""


class Approval(msgspec.Struct):
    """The stored plan of an approved run; `approved` while it holds a valid approval."""

    plan_ref: str
    effects: list[dict[str, Any]]
    reversibility: str
    approved: bool


class Cell(_Message):
    """One saved piece of session state; `value` None says that it could not be saved."""

    name: str
    value: bytes | None = None


class StateChanges(_Message):
    """What a submission changed in the saved state of its session. `pinned` and `unpinned` are
    hashes of stored content that saved cells refer to now, and that they no longer do."""

    changed: list[Cell]
    removed: list[str]
    pinned: list[bytes]
    unpinned: list[bytes]


# --- router to worker -------------------------------------------------------------------------


class Init(_Message, tag="init"):
    """First message of a session worker: what the session is and the state it resumes from.

    `results` are stored transcript results that did not come along, with the size of each; the
    worker asks for one when somebody wants it. `client_results` are the numbers of results of each
    terminal client, by its connection.
    """

    protocol: int
    session: str
    owner: str
    cwd: bytes
    environment: list[tuple[bytes, bytes]]
    next_out: int
    restored: bool
    cells: Content
    results: list[tuple[str, int]]
    client_results: dict[int, list[int]]
    config: bytes
    capture_bytes: int
    spill_bytes: int
    transcript_values: int
    transcript_bytes: int
    kill_grace_ms: int
    journal: bool


class Call(_Message, tag="call"):
    """A request to be answered by `Reply`, `Failure` or, for submissions, `Finished`.

    `params` are the client's own bytes. `task` is the number of the task the submission runs as,
    or 0. `pty` is the number a terminal method is about, or gives to a new terminal.
    """

    id: int
    method: str
    params: bytes
    caller: Caller
    task: int = 0
    pty: int = 0
    # The stored plan that an approved run is held to, as JSON of `Approval`; empty otherwise.
    approval: bytes = b""


class PolicyEntry(_Message):
    """What a principal may do, as JSON; empty for one the policy does not know, then with a
    hint."""

    principal: str
    policy: bytes
    hint: str = ""


class SetPolicies(_Message, tag="policies"):
    """The policies of principals that may act in the session, in force from now on."""

    entries: list[PolicyEntry]


class Go(_Message, tag="go"):
    """The submission row is committed (or recording is off): evaluation may begin."""

    id: int
    entry: int


class Refuse(_Message, tag="refuse"):
    """The submission must not run; its `Finished` carries nothing to record."""

    id: int


class Cancel(_Message, tag="cancel"):
    id: int


class Suspend(_Message, tag="suspend"):
    """Hold or continue a running submission; answered by `Held`."""

    id: int
    call: int
    hold: bool


class Inject(_Message, tag="inject"):
    """An event published by a client on a `user.` channel, for the session's own bus."""

    channel: str
    payload: bytes


class Watch(_Message, tag="watch"):
    """Whether anybody listens to the output of a task."""

    task: int
    on: bool


class Ping(_Message, tag="ping"):
    number: int


class Answer(_Message, tag="answer"):
    """The answer to a worker's `Ask`; `body` is JSON or raw content, an error object if not
    `ok`."""

    id: int
    ok: bool
    body: Content


class ModelRequest(_Message, tag="model_request"):
    """For the model broker: one chat completion, whose answer goes to the frame's descriptor.

    The key is `key`, or what `key_variable` holds in the broker's own environment.
    """

    url: str
    headers: list[tuple[str, str]]
    key: str | None
    key_variable: str | None
    body: bytes
    connect_s: int
    idle_s: int


class Shutdown(_Message, tag="shutdown"):
    """End in order: cancel what runs, close terminals, exit."""

    grace_ms: int


ToWorker = (
    Init
    | SetPolicies
    | Call
    | Go
    | Refuse
    | Cancel
    | Suspend
    | Inject
    | Watch
    | Ping
    | Answer
    | ModelRequest
    | Shutdown
)


# --- worker to router -------------------------------------------------------------------------


class Ready(_Message, tag="ready"):
    """The worker can take calls. `lost` names cells that could not be brought back."""

    pid: int
    cwd: bytes
    env_hash: str
    lost: list[str] = []


class Reply(_Message, tag="reply"):
    """The result of a call that is no submission: raw JSON."""

    id: int
    result: Content


class Failure(_Message, tag="failure"):
    """The error object of a call that is no submission, or of a submission that never started."""

    id: int
    error: bytes


class Started(_Message, tag="started"):
    """A submission passed parsing and policy and begins: what its row needs.

    With `wait` the worker evaluates only after `Go`; otherwise the program has no effects and
    evaluation has begun already.
    """

    id: int
    ast: Content
    effects: bytes
    effect_kinds: list[str]
    opaque: bool
    cwd: bytes
    head: str
    ts: int
    wait: bool
    reversibility: str = "reversible"
    # Whether it runs only because its plan was approved: the approval is used up.
    uses_approval: bool = False


class Output(_Message):
    """One captured content of an entry: `value`, `render`, `stdout`, `stderr`, `undo-snapshot`."""

    kind: str
    content: Content


class Undo(_Message):
    """One inverse of the `row`-th statement row of the submission."""

    row: int
    op: str
    inverse: str
    snapshot: Content | None = None


class Statement(_Message):
    """The `index`-th statement row of a submission; `parent` is the index of its parent statement
    or -1 for the submission. `done`: it has ended, and this is its final form."""

    index: int
    parent: int
    ordinal: int
    ts: int
    dur_ns: int | None
    cwd: bytes
    src: str
    head: str
    ast: bytes
    effects: bytes
    effect_kinds: list[str]
    opaque: bool
    status: int | None
    ok: bool | None
    done: bool
    outputs: list[Output]


class Progress(_Message, tag="progress"):
    """Statement rows and inverses of a submission that takes longer, as they come; inverses also of
    one that has ended, while tasks it started go on."""

    id: int
    statements: list[Statement]
    undo: list[Undo]


class Finished(_Message, tag="finished"):
    """The end of a submission: its answer and everything that must be committed before it.

    `body` is the raw JSON result or error object. `ending` is `value`, `failed` (a failed outcome),
    `signalled` (a failed outcome with a signal), `raised` or `cancelled`. `transcript` and `render`
    are event payloads, empty when there is none. `out` is the number the result took. `started` is
    there when the submission was over before its start had been announced. `statements` and `undo`
    are those that were not in a `Progress` yet. `cells` are `StateChanges`.
    """

    id: int
    ok: bool
    body: Content
    ending: str
    out: int
    dur_ns: int
    status: int | None
    outputs: list[Output]
    statements: list[Statement]
    undo: list[Undo]
    transcript: bytes
    render: bytes
    cells: Content
    cwd: bytes
    env_hash: str
    started: Started | None = None


class Emit(_Message, tag="emit"):
    """An event of the session's bus on a `user.` channel; payload in wire form."""

    channel: str
    payload: bytes


class TaskOutput(_Message, tag="task_output"):
    """What the commands of a task printed since the last time; `count` bytes came so far."""

    task: int
    stream: Literal["stdout", "stderr"]
    count: int
    tail: str


class TerminalChanged(_Message, tag="terminal_changed"):
    """What a terminal shows changed, or its program ended."""

    pty: int
    alive: bool


class Held(_Message, tag="held"):
    id: int
    done: bool


class Pong(_Message, tag="pong"):
    number: int


class Ask(_Message, tag="ask"):
    """A question of a worker to the router (journal rows, stored content, secrets)."""

    id: int
    call: int
    op: str
    params: bytes


FromWorker = (
    Ready
    | Reply
    | Failure
    | Started
    | Progress
    | Finished
    | Emit
    | TaskOutput
    | TerminalChanged
    | Held
    | Pong
    | Ask
)

_encoder = msgspec.msgpack.Encoder()
_from_worker: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
_to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
_cells: msgspec.msgpack.Decoder[list[Cell]] = msgspec.msgpack.Decoder(list[Cell])
_changes: msgspec.msgpack.Decoder[StateChanges] = msgspec.msgpack.Decoder(StateChanges)


def encode(message: ToWorker | FromWorker) -> bytes:
    return _encoder.encode(message)


def encode_cells(cells: list[Cell]) -> bytes:
    return _encoder.encode(cells)


def decode_cells(data: bytes) -> list[Cell]:
    """Raises ProtocolError."""
    try:
        return _cells.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProtocolError(str(error)) from None


def encode_changes(changes: StateChanges) -> bytes:
    return _encoder.encode(changes)


def decode_changes(data: bytes) -> StateChanges:
    """Raises ProtocolError."""
    try:
        return _changes.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProtocolError(str(error)) from None


def decode_from_worker(payload: bytes) -> FromWorker:
    """Raises ProtocolError."""
    try:
        return _from_worker.decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProtocolError(str(error)) from None


def decode_to_worker(payload: bytes) -> ToWorker:
    """Raises ProtocolError."""
    try:
        return _to_worker.decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProtocolError(str(error)) from None
