"""The agent endpoint's methods: typed parameters and results, grants, kinds of answers (chapter
70).

This is the one place where a method's shape is written. Parameters have snake_case names here; the
decoder accepts the camelCase twin of each, at every level, and refuses twins that differ. Results
are encoded from the same names; methods marked `twins` also send the camelCase names.

Failure: `decode` reports -32602 with the member at fault in the message and in `data.field`.
"""

from __future__ import annotations

import types
import typing
from typing import Any, Final, TypeVar

import msgspec

from ipc.agent_envelope import AgentCode, agent_error

AGENT_PROTOCOL: Final = 1
SESSION_ID_BYTES_MAX: Final = 128
FEATURES: Final = ("dual_spelling", "chunked_upload", "elicitation_form", "turn_started")

T = TypeVar("T")
Json = msgspec.Raw
ABSENT: Final = msgspec.Raw(b"")


class _Params(msgspec.Struct, gc=False):
    pass


class _Result(msgspec.Struct, gc=False, omit_defaults=True):
    pass


class NoParams(_Params):
    """The method takes none and ignores whatever is sent."""


# --- core ----------------------------------------------------------------------------------------


class InitializeParams(_Params):
    protocol_version: Json = ABSENT
    auth_token: str | None = None
    auth_provider: str | None = None
    client_capabilities: Json = ABSENT
    tui_id: str | None = None
    tui_sig: str | None = None
    env: dict[str, str] | None = None


class InitializeResult(_Result):
    protocol_version: int
    server_version: str
    server_pid: int
    daemon_instance_id: str
    tui_id: str
    tui_sig: str
    capabilities: list[str]
    commands: list[Any] = msgspec.field(name="commands")
    auth_methods: list[str]
    principal_id: str
    features: list[str]


class StatusResult(_Result):
    server_version: str
    protocol_version: int
    active_sessions: int
    session_ids: list[str]
    local_ipc_endpoint: str
    config_dir: str | None = None
    config_file: str | None = None
    config_kind: str | None = None


class HealthResult(_Result):
    pid: int
    updated_at: str
    uptime_seconds: int
    components: dict[str, Any]
    process: dict[str, Any]


# --- sessions ------------------------------------------------------------------------------------


class NewParams(_Params):
    agent_alias: str
    cwd: str | None = None
    session_id: str | None = None
    chat_mode: str | None = None
    interaction_surface: str | None = None
    keep_siblings: bool | None = None
    exclude_memory: Json = ABSENT
    tui_id: Json = ABSENT


class NewResult(_Result):
    session_id: str
    agent_alias: str
    message_count: int
    workspace_dir: str


class SessionParams(_Params):
    session_id: str


class CloseResult(_Result):
    session_id: str
    closed: bool


class KillResult(_Result):
    session_id: str
    killed: bool


class DeleteResult(_Result):
    session_id: str
    deleted: bool


class ListParams(_Params):
    query: str | None = None
    limit: int | None = None
    running: bool | None = None


class SessionEntry(_Result):
    session_id: str
    session_key: str
    created_at: str
    last_activity: str
    message_count: int
    live: bool
    killed: bool
    state: str
    channel_id: str
    agent_alias: str | None = None
    name: str | None = None


class ListResult(_Result):
    sessions: list[SessionEntry]


class MessagesParams(_Params):
    session_id: str
    limit: int | None = None
    before_index: int | None = None
    cursor: Json = ABSENT


class Message(_Result):
    role: str
    content: str
    kind: str
    created_at: str | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    tool_input: Any = None
    tool_output: str | None = None


class MessagesPage(_Result):
    session_id: str
    messages: list[Message]
    total: int
    start: int


class MessagesCursorPage(msgspec.Struct, gc=False):
    session_id: str
    messages: list[Message]
    next_cursor: str | None
    has_older: bool


class PlanEntry(_Result, rename={"active_form": "activeForm"}):
    content: str
    status: str
    priority: str
    active_form: str | None = None


class StateResult(_Result):
    session_id: str
    state: str
    turn_id: str | None = None
    turn_started_at: str | None = None
    plan: list[PlanEntry] | None = None


class FileEntry(_Params):
    path: str | None = None
    data_b64: str | None = None
    filename: str | None = None
    mime_type: str | None = None
    source: str | None = None


class PromptParams(_Params):
    session_id: str
    prompt: str
    client_turn_generation: int | None = None
    attachments: list[FileEntry] | None = None


class PromptResult(_Result):
    session_id: str
    stop_reason: str
    content: str
    turn_id: str


class CancelResult(_Result):
    session_id: str
    cancelled: bool


class ApproveParams(_Params):
    session_id: str
    request_id: str
    decision: str
    replacement: str | None = None


class ApproveResult(_Result):
    session_id: str
    request_id: str
    acknowledged: bool


class Overrides(_Params):
    model: str | None = None
    model_provider: str | None = None
    temperature: float | None = None


class ConfigureParams(_Params):
    session_id: str
    overrides: Overrides


class ConfigureResult(_Result):
    session_id: str
    overrides: dict[str, Any]


# --- configuration -------------------------------------------------------------------------------


class ConfigGetParams(_Params):
    prop: str | None = None


class ConfigGetResult(_Result):
    """`prop` and `masked` are absent when the whole tree was asked for."""

    value: Any
    prop: str | None = None
    masked: bool | None = None


class ConfigSetParams(_Params):
    prop: str
    value: Json
    comment: str | None = None


class ConfigSetResult(_Result):
    prop: str
    set: bool


class SetEntry(_Params):
    prop: str
    value: Json


class ConfigSetManyParams(_Params):
    sets: list[SetEntry]


class ConfigSetManyResult(_Result):
    props: list[str]
    set: bool


class ConfigListParams(_Params):
    prefix: str | None = None


class ConfigEntry(_Result):
    path: str
    category: str
    kind: str
    type_hint: str
    populated: bool
    is_secret: bool
    is_env_overridden: bool
    description: str
    value: str | None = None
    enum_variants: list[str] | None = None
    section: str | None = None


class ConfigListResult(_Result):
    entries: list[ConfigEntry]


class ConfigDeleteParams(_Params):
    prop: str


class ConfigDeleteResult(_Result):
    prop: str
    deleted: bool


class ConfigValidateResult(_Result):
    valid: bool
    error: str | None = None


class ConfigReloadResult(_Result):
    reloading: bool


class MapKeysParams(_Params):
    path: str


class MapKeysResult(_Result):
    path: str
    keys: list[str]


class MapKeyParams(_Params):
    path: str
    key: str


class MapKeyCreateResult(_Result):
    path: str
    key: str
    created: bool


class MapKeyDeleteResult(_Result):
    path: str
    key: str
    deleted: bool


# --- agents, files, logs -------------------------------------------------------------------------


class AgentEntry(_Result):
    alias: str
    enabled: bool
    channels: list[Any] = msgspec.field(name="channels")


class AgentsResult(_Result):
    agents: list[AgentEntry]


class AgentStatusEntry(_Result):
    alias: str
    enabled: bool
    channels: list[Any] = msgspec.field(name="channels")
    live_sessions: int
    persisted_sessions: int


class AgentsStatusResult(_Result):
    agents: list[AgentStatusEntry]


class AttachParams(_Params):
    session_id: str
    files: list[FileEntry]


class FileResult(_Result):
    ref_id: str
    marker: str
    workspace_path: str
    size_bytes: int
    deduplicated: bool


class AttachResult(_Result):
    files: list[FileResult]


class UploadBeginParams(_Params):
    session_id: str
    size_bytes: int
    filename: str | None = None
    sha256: str | None = None


class UploadBeginResult(_Result):
    upload_id: str
    chunk_bytes: int
    max_bytes: int


class UploadChunkParams(_Params):
    upload_id: str
    offset: int
    data_b64: bytes


class UploadChunkResult(_Result):
    received_bytes: int


class UploadCommitParams(_Params):
    upload_id: str


class ListDirParams(_Params):
    path: str
    show_hidden: bool | None = None


class DirEntry(_Result):
    name: str
    full_path: str
    is_dir: bool
    is_hidden: bool
    size: int
    mtime: int | None = None


class ListDirResult(_Result):
    entries: list[DirEntry]
    cwd: str
    truncated: bool | None = None


class LogsSubscribeParams(_Params):
    since_seq: int | None = None
    epoch: str | None = None


class LogsSubscribeResult(_Result):
    subscribed: bool
    subscription_id: str
    seq: int
    epoch: str


class SubscriptionCancelParams(_Params):
    subscription_id: str


class SubscriptionCancelResult(_Result):
    cancelled: bool


# --- the registry --------------------------------------------------------------------------------


class Method:
    """One method: its types, the grant it needs (None for `initialize`), and its twins."""

    __slots__ = ("_fields", "grant", "name", "params", "result", "summary", "twins")

    def __init__(
        self,
        name: str,
        grant: str | None,
        params: type[Any],
        result: Any,
        summary: str,
        *,
        twins: bool = False,
    ) -> None:
        self.name = name
        self.grant = grant
        self.params = params
        self.result = result
        self.summary = summary
        self.twins = twins
        self._fields = _Shape.of(params)

    def decode(self, raw: bytes | memoryview) -> Any:
        """The parameters of a call; empty `raw` means none. Raises RpcError."""
        if self.params is NoParams:
            return NoParams()
        if raw[:1] == b"[":
            raise invalid_params("params must be an object with named parameters")
        members = _members.decode(raw) if raw else {}
        return self._fields.decode(members, "")

    def encode(self, result: msgspec.Struct) -> bytes:
        """A result as JSON, with twins where the method sends them."""
        if not self.twins:
            return _encode(result)
        return _encode(with_twins(msgspec.to_builtins(result)))


_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_anything: Final = msgspec.json.Decoder()
_encode: Final = msgspec.json.Encoder().encode


def invalid_params(message: str, /, **data: Any) -> Exception:
    """The -32602 error, to be raised."""
    return agent_error(AgentCode.INVALID_PARAMS, message, "invalid_params", **data)


def camel(name: str) -> str:
    """The camelCase twin of a snake_case name."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def with_twins(members: dict[str, Any]) -> dict[str, Any]:
    """The members with the camelCase twin of each that has one, also inside lists of objects."""
    doubled: dict[str, Any] = {}
    for name, value in members.items():
        if type(value) is list and value and type(value[0]) is dict:
            value = [with_twins(item) for item in value]
        doubled[name] = value
        if "_" in name:
            doubled[camel(name)] = value
    return doubled


class _Shape:
    """How to decode one parameter object: a decoder per member, nested objects by their shape."""

    __slots__ = ("_decoders", "_nested", "_required", "_struct")

    def __init__(self, struct: type[Any]) -> None:
        self._struct = struct
        self._decoders: dict[str, msgspec.json.Decoder[Any]] = {}
        self._nested: dict[str, tuple[_Shape, bool]] = {}
        self._required: set[str] = set()
        hints = typing.get_type_hints(struct)
        for field in msgspec.structs.fields(struct):
            if field.required:
                self._required.add(field.name)
            hint = hints[field.name]
            inner, many = _inner_struct(hint)
            if inner is not None:
                self._nested[field.name] = (_Shape.of(inner), many)
            else:
                self._decoders[field.name] = msgspec.json.Decoder(hint)

    @classmethod
    def of(cls, struct: type[Any]) -> _Shape:
        if struct not in _shapes:
            _shapes[struct] = cls(struct)
        return _shapes[struct]

    def decode(self, members: dict[str, msgspec.Raw], place: str) -> Any:
        found: dict[str, Any] = {}
        for name in (*self._decoders, *self._nested):
            raw = _one_spelling(members, name, place)
            if raw is None:
                if name in self._required:
                    raise invalid_params(
                        f"missing required parameter `{place}{name}`", field=place + name
                    )
                continue
            value = self._member(name, raw, place + name)
            if value is not None:
                found[name] = value
            elif name in self._required:
                raise invalid_params(f"`{place}{name}` must not be null", field=place + name)
        return self._struct(**found)

    def _member(self, name: str, raw: msgspec.Raw, place: str) -> Any:
        nested = self._nested.get(name)
        try:
            if nested is None:
                return self._decoders[name].decode(raw)
            shape, many = nested
            if bytes(raw) == b"null":
                return None
            if not many:
                return shape.decode(_members.decode(raw), place + ".")
            items = _lists.decode(raw)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise invalid_params(f"`{place}`: {error}", field=place) from None
        return [shape.decode(item, f"{place}[{index}].") for index, item in enumerate(items)]


_shapes: dict[type[Any], _Shape] = {}
_lists: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


def _inner_struct(hint: Any) -> tuple[type[Any] | None, bool]:
    """The parameter struct inside a hint, and whether it comes as a list."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    if typing.get_origin(hint) is list:
        (item,) = typing.get_args(hint)
        return (item, True) if _is_params(item) else (None, False)
    return (hint, False) if _is_params(hint) else (None, False)


def _is_params(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, _Params)


def _one_spelling(members: dict[str, msgspec.Raw], name: str, place: str) -> msgspec.Raw | None:
    """The raw value under either spelling; both must agree when both are there."""
    twin = camel(name)
    raw, other = members.get(name), members.get(twin)
    if raw is None:
        return other
    if twin == name or other is None or _same(raw, other):
        return raw
    raise invalid_params(f"`{place}{name}` and `{place}{twin}` differ", field=place + name)


def _same(one: msgspec.Raw, other: msgspec.Raw) -> bool:
    if bytes(one) == bytes(other):
        return True
    try:
        first, second = _anything.decode(one), _anything.decode(other)
    except msgspec.DecodeError:
        return False
    return type(first) is type(second) and bool(first == second)


_ALL: Final = (
    Method("initialize", None, InitializeParams, InitializeResult,
           "Authenticate and bind this connection.", twins=True),
    Method("status", "system:read", NoParams, StatusResult, "Version and live sessions."),
    Method("health", "system:read", NoParams, HealthResult, "State of the router's parts."),
    Method("agents/list", "agents:read", NoParams, AgentsResult, "Agents the caller may use."),
    Method("agents/status", "agents:read", NoParams, AgentsStatusResult,
           "The same with counts of sessions."),
    Method("session/new", "sessions:create", NewParams, NewResult,
           "Create a session, or resume one by its id.", twins=True),
    Method("session/close", "sessions:update", SessionParams, CloseResult,
           "End the live session; its history stays and can be resumed.", twins=True),
    Method("session/kill", "sessions:delete", SessionParams, KillResult,
           "End the session for good; its history stays readable.", twins=True),
    Method("session/delete", "sessions:delete", SessionParams, DeleteResult,
           "End the session and forget its history.", twins=True),
    Method("session/list", "sessions:read", ListParams, ListResult,
           "Sessions of the caller, newest activity first.", twins=True),
    Method("session/list-acp", "sessions:read", ListParams, ListResult,
           "Another name of `session/list`.", twins=True),
    Method("session/messages", "sessions:read", MessagesParams, MessagesPage | MessagesCursorPage,
           "The visible transcript, by page or by cursor.", twins=True),
    Method("session/state", "sessions:read", SessionParams, StateResult,
           "Whether a turn runs, and the stored plan.", twins=True),
    Method("session/prompt", "sessions:execute", PromptParams, PromptResult,
           "Run one turn; answers at its end.", twins=True),
    Method("session/cancel", "sessions:update", SessionParams, CancelResult,
           "Cancel the running turn.", twins=True),
    Method("session/approve", "sessions:update", ApproveParams, ApproveResult,
           "Answer an approval request.", twins=True),
    Method("session/configure", "sessions:update", ConfigureParams, ConfigureResult,
           "Override model, provider or temperature from the next turn on.", twins=True),
    Method("config/get", "config:read", ConfigGetParams, ConfigGetResult,
           "One property as display text, or the whole tree."),
    Method("config/set", "config:update", ConfigSetParams, ConfigSetResult, "Set one property."),
    Method("config/set-many", "config:update", ConfigSetManyParams, ConfigSetManyResult,
           "Set several properties, all or none."),
    Method("config/list", "config:read", ConfigListParams, ConfigListResult,
           "Every property with its description."),
    Method("config/delete", "config:delete", ConfigDeleteParams, ConfigDeleteResult,
           "Reset a property, or remove a map key with everything below."),
    Method("config/validate", "config:read", NoParams, ConfigValidateResult,
           "Whether the configuration is valid."),
    Method("config/reload", "config:update", NoParams, ConfigReloadResult,
           "Read the configuration again; connections close."),
    Method("config/map-keys", "config:read", MapKeysParams, MapKeysResult,
           "Keys of a map section."),
    Method("config/map-key-create", "config:update", MapKeyParams, MapKeyCreateResult,
           "Create a map key with defaults."),
    Method("config/map-key-delete", "config:delete", MapKeyParams, MapKeyDeleteResult,
           "Remove a map key that nothing refers to."),
    Method("file/attach", "files:create", AttachParams, AttachResult,
           "Store files in the session's workspace."),
    Method("file/upload/begin", "files:create", UploadBeginParams, UploadBeginResult,
           "Begin a chunked upload."),
    Method("file/upload/chunk", "files:create", UploadChunkParams, UploadChunkResult,
           "Send the next piece of an upload."),
    Method("file/upload/commit", "files:create", UploadCommitParams, FileResult,
           "Store a complete upload."),
    Method("fs/list_dir", "files:read", ListDirParams, ListDirResult, "List a directory."),
    Method("logs/subscribe", "logs:read", LogsSubscribeParams, LogsSubscribeResult,
           "Receive the router's log events."),
    Method("subscription/cancel", "logs:read", SubscriptionCancelParams, SubscriptionCancelResult,
           "Stop a subscription of this connection."),
)  # fmt: skip

METHODS: Final[dict[str, Method]] = {method.name: method for method in _ALL}


def check_session_id(session_id: str) -> str:
    """1 to 128 bytes and no control characters, else -32602 (chapter 70 §9.1)."""
    size = len(session_id.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= SESSION_ID_BYTES_MAX:
        raise invalid_params(
            f"`session_id` must have 1 to {SESSION_ID_BYTES_MAX} bytes", field="session_id"
        )
    if any(ord(char) < 32 or 127 <= ord(char) < 160 for char in session_id):
        raise invalid_params("`session_id` must not contain control characters", field="session_id")
    return session_id
