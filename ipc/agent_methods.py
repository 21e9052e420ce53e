"""The agent endpoint's methods: typed parameters and results, grants, kinds of answers (chapter
70).

This is the one place where a method's shape is written; how it is read and written is in
`ipc.agent_params`.

Failure: `check_session_id` raises RpcError -32602.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ipc.agent_params import ABSENT, Json, Method, NoParams, Params, Result, invalid_params

AGENT_PROTOCOL: Final = 1
SESSION_ID_BYTES_MAX: Final = 128
FEATURES: Final = ("dual_spelling", "chunked_upload", "elicitation_form", "turn_started")

# --- core ----------------------------------------------------------------------------------------


class InitializeParams(Params):
    protocol_version: Json = ABSENT
    auth_token: str | None = None
    auth_provider: str | None = None
    client_capabilities: Json = ABSENT
    tui_id: str | None = None
    tui_sig: str | None = None
    env: dict[str, str] | None = None


class InitializeResult(Result):
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


class StatusResult(Result):
    server_version: str
    protocol_version: int
    active_sessions: int
    session_ids: list[str]
    local_ipc_endpoint: str
    config_dir: str | None = None
    config_file: str | None = None
    config_kind: str | None = None


class HealthResult(Result):
    pid: int
    updated_at: str
    uptime_seconds: int
    components: dict[str, Any]
    process: dict[str, Any]


# --- sessions ------------------------------------------------------------------------------------


class NewParams(Params):
    agent_alias: str
    cwd: str | None = None
    session_id: str | None = None
    chat_mode: str | None = None
    interaction_surface: str | None = None
    keep_siblings: bool | None = None
    exclude_memory: Json = ABSENT
    tui_id: Json = ABSENT


class NewResult(Result):
    session_id: str
    agent_alias: str
    message_count: int
    workspace_dir: str


class SessionParams(Params):
    session_id: str


class CloseResult(Result):
    session_id: str
    closed: bool


class KillResult(Result):
    session_id: str
    killed: bool


class DeleteResult(Result):
    session_id: str
    deleted: bool


class ListParams(Params):
    query: str | None = None
    limit: int | None = None
    running: bool | None = None


class SessionEntry(Result):
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


class ListResult(Result):
    sessions: list[SessionEntry]


class MessagesParams(Params):
    session_id: str
    limit: int | None = None
    before_index: int | None = None
    cursor: Json = ABSENT


class Message(Result):
    role: str
    content: str
    kind: str
    created_at: str | None = None
    tool_call_id: str | None = None
    tool_name: str | None = None
    tool_input: Any = None
    tool_output: str | None = None


class MessagesPage(Result):
    session_id: str
    messages: list[Message]
    total: int
    start: int


class MessagesCursorPage(msgspec.Struct, gc=False):
    session_id: str
    messages: list[Message]
    next_cursor: str | None
    has_older: bool


class PlanEntry(Result, rename={"active_form": "activeForm"}):
    content: str
    status: str
    priority: str
    active_form: str | None = None


class StateResult(Result):
    session_id: str
    state: str
    turn_id: str | None = None
    turn_started_at: str | None = None
    plan: list[PlanEntry] | None = None


class FileEntry(Params):
    path: str | None = None
    data_b64: str | None = None
    filename: str | None = None
    mime_type: str | None = None
    source: str | None = None


class PromptParams(Params):
    session_id: str
    prompt: str
    client_turn_generation: int | None = None
    attachments: list[FileEntry] | None = None


class PromptResult(Result):
    session_id: str
    stop_reason: str
    content: str
    turn_id: str


class CancelResult(Result):
    session_id: str
    cancelled: bool


class ApproveParams(Params):
    session_id: str
    request_id: str
    decision: str
    replacement: str | None = None


class ApproveResult(Result):
    session_id: str
    request_id: str
    acknowledged: bool


class Overrides(Params):
    model: str | None = None
    model_provider: str | None = None
    temperature: float | None = None


class ConfigureParams(Params):
    session_id: str
    overrides: Overrides


class ConfigureResult(Result):
    session_id: str
    overrides: dict[str, Any]


# --- configuration -------------------------------------------------------------------------------


class ConfigGetParams(Params):
    prop: str | None = None


class ConfigGetResult(Result):
    """`prop` and `masked` are absent when the whole tree was asked for."""

    value: Any
    prop: str | None = None
    masked: bool | None = None


class ConfigSetParams(Params):
    prop: str
    value: Json
    comment: str | None = None


class ConfigSetResult(Result):
    prop: str
    set: bool


class SetEntry(Params):
    prop: str
    value: Json


class ConfigSetManyParams(Params):
    sets: list[SetEntry]


class ConfigSetManyResult(Result):
    props: list[str]
    set: bool


class ConfigListParams(Params):
    prefix: str | None = None


class ConfigEntry(Result):
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


class ConfigListResult(Result):
    entries: list[ConfigEntry]


class ConfigDeleteParams(Params):
    prop: str


class ConfigDeleteResult(Result):
    prop: str
    deleted: bool


class ConfigValidateResult(Result):
    valid: bool
    error: str | None = None


class ConfigReloadResult(Result):
    reloading: bool


class MapKeysParams(Params):
    path: str


class MapKeysResult(Result):
    path: str
    keys: list[str]


class MapKeyParams(Params):
    path: str
    key: str


class MapKeyCreateResult(Result):
    path: str
    key: str
    created: bool


class MapKeyDeleteResult(Result):
    path: str
    key: str
    deleted: bool


# --- agents, files, logs -------------------------------------------------------------------------


class AgentEntry(Result):
    alias: str
    enabled: bool
    channels: list[Any] = msgspec.field(name="channels")


class AgentsResult(Result):
    agents: list[AgentEntry]


class AgentStatusEntry(Result):
    alias: str
    enabled: bool
    channels: list[Any] = msgspec.field(name="channels")
    live_sessions: int
    persisted_sessions: int


class AgentsStatusResult(Result):
    agents: list[AgentStatusEntry]


class AttachParams(Params):
    session_id: str
    files: list[FileEntry]


class FileResult(Result):
    ref_id: str
    marker: str
    workspace_path: str
    size_bytes: int
    deduplicated: bool


class AttachResult(Result):
    files: list[FileResult]


class UploadBeginParams(Params):
    session_id: str
    size_bytes: int
    filename: str | None = None
    sha256: str | None = None


class UploadBeginResult(Result):
    upload_id: str
    chunk_bytes: int
    max_bytes: int


class UploadChunkParams(Params):
    upload_id: str
    offset: int
    data_b64: bytes


class UploadChunkResult(Result):
    received_bytes: int


class UploadCommitParams(Params):
    upload_id: str


class ListDirParams(Params):
    path: str
    show_hidden: bool | None = None


class DirEntry(Result):
    name: str
    full_path: str
    is_dir: bool
    is_hidden: bool
    size: int
    mtime: int | None = None


class ListDirResult(Result):
    entries: list[DirEntry]
    cwd: str
    truncated: bool | None = None


class LogsSubscribeParams(Params):
    since_seq: int | None = None
    epoch: str | None = None


class LogsSubscribeResult(Result):
    subscribed: bool
    subscription_id: str
    seq: int
    epoch: str


class SubscriptionCancelParams(Params):
    subscription_id: str


class SubscriptionCancelResult(Result):
    cancelled: bool


# --- the registry --------------------------------------------------------------------------------


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
