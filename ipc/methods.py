"""The kernel endpoint's methods: typed parameters and results, gates, where each runs (chapter 60
§5).

This is the one place where a method's shape is written. The router decodes with `params`, workers
decode the same type again from the client's bytes, the reference page is generated from `METHODS`.
Parameter structs ignore unknown members; optional members given as null count as absent.

Failure: decoding reports -32602 with a message that names the member (`ipc.jsonrpc.decode_params`).
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Final

import msgspec

from ipc.jsonrpc import invalid_params

KERNEL_PROTOCOL: Final = 1
AST_VERSION: Final = 2
U64_MAX: Final = 2**64 - 1
SESSION_NAME_BYTES_MAX: Final = 128
ATTACH_CHANNELS: Final = ["session.transcript", "journal", "approval", "render"]

U64 = Annotated[int, msgspec.Meta(ge=0)]
Json = msgspec.Raw


class Gate(Enum):
    PUBLIC = "public"
    ATTACHED = "attached"


class Runs(Enum):
    """Who answers: the router, a syntax worker, the session's worker (read), or its queue."""

    ROUTER = "router"
    SYNTAX = "syntax worker"
    READ = "worker read"
    QUEUED = "worker, queued"


class _Params(msgspec.Struct, gc=False):
    pass


class NoParams(_Params):
    """The method takes none and ignores whatever object is sent."""


# --- sessions ---------------------------------------------------------------------------------


class Client(_Params):
    kind: str | None = ""
    tty: bool | None = False


class AttachParams(_Params):
    session: str | None = "default"
    token: str | None = None
    client: Client | None = None


class PathObject(msgspec.Struct, gc=False, omit_defaults=True):
    """A path on the wire: lossy text, and the exact bytes in base64 when they are not UTF-8."""

    display: str
    raw: str | None = None


class AttachResult(msgspec.Struct, gc=False, omit_defaults=True):
    session: str
    owner: str
    principal: str
    caps: dict[str, Any]
    cwd: PathObject
    env_hash: str
    ast_version: int
    caps_enforced: bool
    elide_defaults: dict[str, int]
    channels: list[str]
    restored: bool | None = None
    lost: list[str] | None = None


class EnvResult(msgspec.Struct, gc=False, omit_defaults=True):
    granted: bool
    names: list[str]
    env: dict[str, str] | None = None


class ReefBinding(msgspec.Struct, gc=False):
    """A constrained tool; version and provider are those of its lock entry."""

    tool: str
    version: str | None
    provider: str | None
    scope: str
    constrained: bool


class ReefResult(msgspec.Struct, gc=False):
    active_scope: str | None
    bindings: list[ReefBinding]


class ListParams(_Params):
    all: bool | None = False


class SessionRow(msgspec.Struct, gc=False):
    session: str
    owner: str
    owned: bool
    state: str
    pid: int | None
    attached: int
    tasks: int
    ptys: int
    cwd: PathObject
    created_ns: int
    last_used_ns: int


class OwnedSessionRow(SessionRow, gc=False):
    shared_with: list[str]
    share_mode: str | None


class ListResult(msgspec.Struct, gc=False):
    sessions: list[OwnedSessionRow] | list[SessionRow]


class CloseParams(_Params):
    session: str | None = None
    force: bool | None = False


class CloseResult(msgspec.Struct, gc=False):
    session: str
    closed: bool
    tasks_cancelled: int
    ptys_closed: int


class ShareParams(_Params):
    principals: list[str]
    session: str | None = None
    mode: str | None = "full"


class ShareResult(msgspec.Struct, gc=False):
    session: str
    owner: str
    principals: list[str]
    mode: str


class ServerInfo(msgspec.Struct, gc=False):
    version: str
    kernel_protocol: int
    ast_version: int
    pid: int
    started_ns: int
    methods: list[str]
    limits: dict[str, int]
    tier: str


# --- source -----------------------------------------------------------------------------------


class ParseParams(_Params):
    src: str


class ParseResult(msgspec.Struct, gc=False):
    ast_version: int
    ast: Json


class CompleteParams(_Params):
    src: str
    cursor: U64 | None = None


class CompleteResult(msgspec.Struct, gc=False, omit_defaults=True):
    candidates: list[str]
    session_candidates: list[str] | None = None


class Elide(_Params):
    """Budgets asked for; an absent member keeps the default (chapter 60 §6.1)."""

    max_bytes: U64 | None = None
    max_rows: U64 | None = None
    max_items: U64 | None = None


class ExecParams(_Params, rename={"async_": "async"}):
    src: str
    mode: str | None = "run"
    position: str | None = "stmt"
    async_: bool | None = None
    background: bool | None = None
    timeout_ms: U64 | None = None
    elide: Elide | None = None
    plan_ref: str | None = None


class ExecResult(msgspec.Struct, gc=False):
    ref: str
    value: Json
    render: str


class TaskStarted(msgspec.Struct, gc=False, omit_defaults=True):
    task: str
    events: str
    timed_out: bool | None = None


class ExplainParams(_Params):
    """`src` wins when both are given. A missing `ast` is empty, one given as null is `null`."""

    src: str | None = None
    ast: Json = Json(b"")

    @property
    def tree(self) -> bytes | None:
        """The JSON of the tree, None when there is none."""
        text = bytes(self.ast)
        return None if text in (b"", b"null") else text


class ExplainResult(msgspec.Struct, gc=False):
    ast_version: int
    ast: Json
    effects: list[dict[str, Any]]
    reversibility: str
    estimates: dict[str, int | None]
    plan_ref: str


# --- plans --------------------------------------------------------------------------------------


class PlanMade(msgspec.Struct, gc=False, omit_defaults=True):
    """What `exec` in plan mode answers; `cause` and `hint` for a principal without a policy."""

    plan_ref: str
    effects: list[dict[str, Any]]
    reversibility: str
    verdict: str
    approval_pending: bool
    approved: bool
    estimates: Json
    cause: str | None = None
    hint: str | None = None


class PlanRefParams(_Params):
    plan_ref: str


class PlanListParams(_Params):
    approvable: bool | None = False


class PlanSummary(msgspec.Struct, gc=False):
    plan_ref: str
    effects: Json
    reversibility: str
    verdict: str
    approval_pending: bool
    approved: bool
    estimates: Json
    principal: str
    session: str
    created_ns: int
    expires_ns: int | None
    requested_ns: int | None


class PlanFull(PlanSummary, gc=False):
    ast_version: int
    ast: Json
    src: str
    approved_by: str | None
    approved_ns: int | None
    approval_expires_ns: int | None


class CapRequestParams(_Params):
    """`effects` holds kinds as strings, or objects with `kind`; other entries are skipped."""

    plan_ref: str | None = None
    effects: list[Any] | None = None


class CapGranted(msgspec.Struct, gc=False):
    grant: str
    plan_ref: str
    enforced: bool
    granted_effects: list[str]
    approver: str | None
    approved_ns: int | None
    expires_ns: int | None


class CapPending(msgspec.Struct, gc=False):
    """The owner asked; somebody else must approve."""

    grant: str
    plan_ref: str
    approval_pending: bool
    approver_required: bool
    requested_effects: list[str]
    requested_ns: int


class CapUncovered(msgspec.Struct, gc=False):
    """The kinds asked for do not cover the plan; nothing was recorded."""

    grant: str
    plan_ref: str
    why: str
    uncovered_effects: list[str]


# --- values and blobs ---------------------------------------------------------------------------


class ValueGetParams(_Params):
    ref: str
    path: str | None = None
    slice: tuple[U64, U64] | None = None
    format: str | None = "json"
    elide: Elide | None = None
    offset: U64 | None = None
    length: U64 | None = None


class ValueGetResult(msgspec.Struct, gc=False, omit_defaults=True):
    """`value`, `render`, `raw` or `raw_base64`, as the format says; the rest only for a piece."""

    ref: str
    value: Json | None = None
    render: str | None = None
    raw: str | None = None
    raw_base64: str | None = None
    offset: int | None = None
    len: int | None = None
    total: int | None = None
    next: int | None = None


class BlobGetParams(_Params):
    hash: str
    offset: U64 | None = None
    length: U64 | None = None


class BlobGetResult(msgspec.Struct, gc=False, omit_defaults=True):
    hash: str
    value: Json
    offset: int | None = None
    len: int | None = None
    total: int | None = None
    next: int | None = None


# --- tasks --------------------------------------------------------------------------------------


class TaskParams(_Params):
    task: str


class TaskAwaitParams(_Params):
    task: str
    timeout_ms: U64 | None = None


class TaskRecord(msgspec.Struct, gc=False):
    task: str
    session: str
    state: str
    started_ns: int
    finished_ns: int | None
    result_ref: str | None
    error: Json | None


class TaskCancelResult(msgspec.Struct, gc=False):
    task: str
    cancel_requested: bool


class TaskHeldResult(msgspec.Struct, gc=False):
    task: str
    suspended: bool


# --- terminals ----------------------------------------------------------------------------------

TerminalSize = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class PtyOpenParams(_Params):
    cmd: str
    args: list[str] | None = None
    cols: TerminalSize | None = None
    rows: TerminalSize | None = None
    env: dict[str, str] | None = None


class PtyOpenResult(msgspec.Struct, gc=False):
    pty_id: str
    pid: int
    cols: int
    rows: int
    cmd: str


class PtyParams(_Params):
    pty_id: str


class PtySendParams(PtyParams):
    """`input`: a string, `{"key"}`, `{"text"}`, `{"bytes"}`, or an array of such items."""

    input: Json


class PtySendResult(msgspec.Struct, gc=False):
    pty_id: str
    sent: int


class PtyExit(msgspec.Struct, gc=False):
    """How the program of a terminal ended; exactly one is set."""

    status: int | None
    signal: str | None


class PtyCursor(msgspec.Struct, gc=False):
    row: int
    col: int
    hidden: bool


class PtyScreen(msgspec.Struct, gc=False):
    pty_id: str
    cmd: str
    cols: int
    rows: int
    cursor: PtyCursor
    screen: list[str]
    changed: bool
    alive: bool
    exit: PtyExit | None
    pid: int


class PtyResizeParams(PtyParams):
    cols: TerminalSize
    rows: TerminalSize


class PtyResizeResult(msgspec.Struct, gc=False):
    pty_id: str
    cols: int
    rows: int


class PtyCloseResult(msgspec.Struct, gc=False):
    pty_id: str
    closed: bool
    exit: PtyExit | None


class PtyRow(msgspec.Struct, gc=False):
    pty_id: str
    cmd: str
    pid: int
    cols: int
    rows: int
    alive: bool


class PtyListResult(msgspec.Struct, gc=False):
    ptys: list[PtyRow]


# --- journal and events -------------------------------------------------------------------------


class JournalQueryParams(_Params):
    since: int | None = None
    until: int | None = None
    principal: str | None = None
    head: str | None = None
    ok: bool | None = None
    effects: list[str] | None = None
    limit: U64 | None = 0
    session: str | None = None
    kind: str | None = None
    before_id: int | None = None


class EventsReadParams(_Params):
    channel: str
    since: U64 | None = None
    limit: U64 | None = None


class EventsReadResult(msgspec.Struct, gc=False):
    channel: str
    events: list[Json]


class EventsPublishParams(_Params):
    """`payload` is required and may be null, so the presence of its raw bytes is checked."""

    channel: str
    payload: Json = Json(b"")


class EventsPublishResult(msgspec.Struct, gc=False):
    channel: str
    seq: int
    ts: int


class EventsSubscribeParams(_Params):
    channel: str
    since: U64 | None = None


class EventsUnsubscribeParams(_Params):
    channel: str


class SubscriptionResult(msgspec.Struct, gc=False):
    channel: str
    subscribed: bool


# --- operator ---------------------------------------------------------------------------------


class StatusParams(_Params):
    metrics: bool | None = False


class StoreParams(_Params):
    """`hash` for `pin` and `unpin`, the others for `gc`."""

    op: str
    hash: str | None = None
    ttl_s: U64 | None = None
    budget: U64 | None = None
    apply: bool | None = False


class StoreResult(msgspec.Struct, gc=False, omit_defaults=True):
    """`changed` of a pin; the others of a collection (chapter 61 §6.2)."""

    changed: bool | None = None
    dry_run: bool | None = None
    candidates: list[dict[str, Any]] | None = None
    deleted: list[dict[str, Any]] | None = None
    reclaimed_bytes: int | None = None
    remaining_bytes: int | None = None


class StatusResult(msgspec.Struct, gc=False, omit_defaults=True):
    """Everything an operator asks first; sections are objects of their own."""

    version: str
    pid: int
    started_ns: int
    socket: str
    state_dir: str | None
    ephemeral: bool
    draining: bool
    config: dict[str, Any]
    policy: dict[str, Any]
    enforcement: dict[str, Any]
    connections: list[dict[str, Any]]
    sessions: list[dict[str, Any]]
    plans: dict[str, int]
    tokens: dict[str, Any]
    journal: dict[str, Any]
    quotas: dict[str, int]
    metrics: str | None = None


class ReloadResult(msgspec.Struct, gc=False):
    reloaded: bool
    generation: int
    error: str | None


# --- the registry -------------------------------------------------------------------------------


class Method:
    """One method: its types, its gate, where it runs, and whether a `read` guest may call it."""

    __slots__ = ("decoder", "gate", "name", "params", "read_guest", "result", "runs", "summary")

    def __init__(
        self,
        name: str,
        gate: Gate,
        runs: Runs,
        params: type[Any],
        result: Any,
        summary: str,
        *,
        read_guest: bool = False,
    ) -> None:
        self.name = name
        self.gate = gate
        self.runs = runs
        self.params = params
        self.result = result
        self.summary = summary
        self.read_guest = read_guest
        self.decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(params)


_ALL = (
    Method("session.attach", Gate.PUBLIC, Runs.ROUTER, AttachParams, AttachResult,
           "Bind this connection to a session, creating it when new.", read_guest=True),
    Method("session.env", Gate.ATTACHED, Runs.READ, NoParams, EnvResult,
           "Names of the session's environment, and the values when policy allows.",
           read_guest=True),
    Method("session.reef", Gate.ATTACHED, Runs.READ, NoParams, ReefResult,
           "Tools that manifests constrain here, as far as it is known.", read_guest=True),
    Method("session.cwd", Gate.ATTACHED, Runs.READ, NoParams, PathObject,
           "The session's current directory.", read_guest=True),
    Method("kernel.status", Gate.ATTACHED, Runs.ROUTER, StatusParams, StatusResult,
           "What the daemon is doing. For the operator."),
    Method("kernel.store", Gate.ATTACHED, Runs.ROUTER, StoreParams, StoreResult,
           "Pin stored content, release it, collect what is not needed. For the operator."),
    Method("kernel.reload", Gate.ATTACHED, Runs.ROUTER, NoParams, ReloadResult,
           "Read configuration, policy and tokens again. For the operator."),
    Method("session.list", Gate.ATTACHED, Runs.ROUTER, ListParams, ListResult,
           "Sessions of the caller and those shared with it.", read_guest=True),
    Method("session.close", Gate.ATTACHED, Runs.ROUTER, CloseParams, CloseResult,
           "End a session for good."),
    Method("session.share", Gate.ATTACHED, Runs.ROUTER, ShareParams, ShareResult,
           "Set the complete list of guests of a session."),
    Method("server.info", Gate.ATTACHED, Runs.ROUTER, NoParams, ServerInfo,
           "Version, protocol, limits and method names of the running daemon.", read_guest=True),
    Method("parse", Gate.PUBLIC, Runs.SYNTAX, ParseParams, ParseResult,
           "Parse source without any session context.", read_guest=True),
    Method("complete", Gate.PUBLIC, Runs.SYNTAX, CompleteParams, CompleteResult,
           "Lexical completion candidates at a cursor.", read_guest=True),
    Method("exec", Gate.ATTACHED, Runs.QUEUED, ExecParams, ExecResult | PlanMade | TaskStarted,
           "Run a program in the session."),
    Method("explain", Gate.ATTACHED, Runs.QUEUED, ExplainParams, ExplainResult,
           "Effects of a program in the session, without running or storing it.",
           read_guest=True),
    Method("plan.get", Gate.ATTACHED, Runs.ROUTER, PlanRefParams, PlanFull,
           "One stored plan, with source and tree.", read_guest=True),
    Method("plan.list", Gate.ATTACHED, Runs.ROUTER, PlanListParams, list[PlanSummary],
           "The caller's plans in the session, or those of others it may approve.",
           read_guest=True),
    Method("plan.apply", Gate.ATTACHED, Runs.QUEUED, PlanRefParams, ExecResult,
           "Run a stored plan that is allowed or approved."),
    Method("cap.request", Gate.ATTACHED, Runs.ROUTER, CapRequestParams,
           CapGranted | CapPending | CapUncovered,
           "Approve a stored plan, or ask for its approval."),
    Method("value.get", Gate.ATTACHED, Runs.READ, ValueGetParams, ValueGetResult,
           "Read a stored result, or a part of it.", read_guest=True),
    Method("blob.get", Gate.ATTACHED, Runs.ROUTER, BlobGetParams, BlobGetResult,
           "Read stored content by its hash.", read_guest=True),
    Method("task.list", Gate.ATTACHED, Runs.ROUTER, NoParams, list[TaskRecord],
           "Task records of the session, ascending number.", read_guest=True),
    Method("task.get", Gate.ATTACHED, Runs.ROUTER, TaskParams, TaskRecord,
           "One task record, now.", read_guest=True),
    Method("task.await", Gate.ATTACHED, Runs.ROUTER, TaskAwaitParams, TaskRecord,
           "A task record once its state is terminal, or at the timeout.", read_guest=True),
    Method("task.cancel", Gate.ATTACHED, Runs.ROUTER, TaskParams, TaskCancelResult,
           "Ask a task to stop."),
    Method("task.suspend", Gate.ATTACHED, Runs.ROUTER, TaskParams, TaskHeldResult,
           "Hold a running task."),
    Method("task.resume", Gate.ATTACHED, Runs.ROUTER, TaskParams, TaskHeldResult,
           "Continue a held task."),
    Method("pty.open", Gate.ATTACHED, Runs.READ, PtyOpenParams, PtyOpenResult,
           "Start a program on a terminal of its own."),
    Method("pty.send", Gate.ATTACHED, Runs.READ, PtySendParams, PtySendResult,
           "Type into a terminal."),
    Method("pty.read", Gate.ATTACHED, Runs.READ, PtyParams, PtyScreen,
           "The screen of a terminal as text, now.", read_guest=True),
    Method("pty.resize", Gate.ATTACHED, Runs.READ, PtyResizeParams, PtyResizeResult,
           "Change the size of a terminal."),
    Method("pty.close", Gate.ATTACHED, Runs.READ, PtyParams, PtyCloseResult,
           "End a terminal and whatever runs on it."),
    Method("pty.list", Gate.ATTACHED, Runs.READ, NoParams, PtyListResult,
           "Open terminals of the session, ascending number.", read_guest=True),
    Method("journal.query", Gate.ATTACHED, Runs.ROUTER, JournalQueryParams, list[Any],
           "Journal entries, newest first.", read_guest=True),
    Method("events.read", Gate.ATTACHED, Runs.ROUTER, EventsReadParams, EventsReadResult,
           "Past events of a channel.", read_guest=True),
    Method("events.publish", Gate.ATTACHED, Runs.ROUTER, EventsPublishParams,
           EventsPublishResult, "Publish on a `user.` channel."),
    Method("events.subscribe", Gate.ATTACHED, Runs.ROUTER, EventsSubscribeParams,
           SubscriptionResult, "Receive a channel's events as notifications.", read_guest=True),
    Method("events.unsubscribe", Gate.ATTACHED, Runs.ROUTER, EventsUnsubscribeParams,
           SubscriptionResult, "Stop receiving a channel.", read_guest=True),
)  # fmt: skip

METHODS: Final[dict[str, Method]] = {method.name: method for method in _ALL}


def check_session_name(name: str) -> None:
    """1 to 128 bytes and no control characters, else -32602 (chapter 60 §5.1)."""
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        invalid_params("`session` is not valid text")
    if not 1 <= size <= SESSION_NAME_BYTES_MAX:
        invalid_params(f"`session` must have 1 to {SESSION_NAME_BYTES_MAX} bytes")
    if any(ord(char) < 32 or 127 <= ord(char) < 160 for char in name):
        invalid_params("`session` must not contain control characters")
