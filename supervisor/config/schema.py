"""Every configuration key: its group, type, default, moment of effect and meaning.

The structs below are the one place where a key is written. Everything else (validation, the
printed form, the reference page, `config.all()`) walks them through `KEYS`.

Sizes are bytes, times carry their unit in the name, and 0 means "no limit" where a rule does not
forbid it. Source: chapter 81, sections 6.3 and 6.4.

Failure: none; the values here are already valid (supervisor.config.validate makes them so).
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Annotated, Final

import msgspec

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB


class Reload(Enum):
    """When a changed value of a running daemon counts."""

    LIVE = "L"  # on SIGHUP
    SESSION = "S"  # for sessions created afterwards
    RESTART = "R"  # after a restart
    CLIENT = "-"  # read by each command or session on its own


class Shape(Enum):
    """What a value looks like in a file; the text is the one of error messages."""

    TABLE = "a table"
    BOOLEAN = "a boolean"
    UNSIGNED = "a non-negative integer"
    STRING = "a string"
    STRINGS = "an array of strings"
    STRING_MAP = "a table of strings"


def _key(meaning: str, reload: Reload = Reload.CLIENT) -> msgspec.Meta:
    return msgspec.Meta(description=meaning, extra={"reload": reload})


def _live(meaning: str) -> msgspec.Meta:
    return _key(meaning, Reload.LIVE)


def _session(meaning: str) -> msgspec.Meta:
    return _key(meaning, Reload.SESSION)


def _restart(meaning: str) -> msgspec.Meta:
    return _key(meaning, Reload.RESTART)


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of keys."""


class Prompt(Group, frozen=True):
    template: Annotated[str, _key("prompt of interactive clients")] = "{cwd}"


class History(Group, frozen=True):
    enabled: Annotated[bool, _key("keep line history")] = True
    max_entries: Annotated[int, _key("lines kept, oldest dropped")] = 10_000
    path: Annotated[
        str | None, _key("history file; absent: history.txt in the state directory")
    ] = None
    dedup: Annotated[bool, _key("do not record a line equal to the one before it")] = True
    ignore: Annotated[
        tuple[str, ...], _key("whole-line patterns not to record; `*` any run, `?` one character")
    ] = ()
    ignore_space: Annotated[bool, _key("do not record lines that begin with a space")] = True


class Render(Group, frozen=True):
    width: Annotated[
        int | None, _key("columns of printed values; absent: the terminal's, 80 without one")
    ] = None
    color: Annotated[bool, _key("colour in printed values and errors")] = True
    paging: Annotated[str, _key("`never`, or `auto`: long results go through the pager")] = "never"
    pager: Annotated[str | None, _key("pager command; absent: `$PAGER`, then `less -R`")] = None
    echo: Annotated[
        str | None,
        _key(
            "which statements print: `quiet`, `commands` or `all`; "
            "absent: `all` in attach, `quiet` in local runs"
        ),
    ] = None


class Editor(Group, frozen=True):
    mode: Annotated[str, _key("line editor keys: `emacs` or `vi`")] = "emacs"
    bracketed_paste: Annotated[bool, _key("take pasted text as one piece")] = True
    keybindings: Annotated[dict[str, str], _key("chord = action")] = {}


class Completion(Group, frozen=True):
    fuzzy: Annotated[bool, _key("match any subsequence of a candidate")] = True
    case_insensitive: Annotated[bool, _key("ignore case when matching")] = True
    menu: Annotated[bool, _key("open a menu when several candidates match")] = True
    max_results: Annotated[int, _key("candidates shown")] = 100


class Adapters(Group, frozen=True):
    enabled: Annotated[bool, _key("false: no adapters at all", Reload.SESSION)] = True
    dirs: Annotated[
        tuple[str, ...],
        _key("directories added after the bundled pack; later ones shadow earlier", Reload.SESSION),
    ] = ()


class Init(Group, frozen=True):
    files: Annotated[
        tuple[str, ...], _key("sources run in order when an interactive session is created")
    ] = ()


class ReefOptions(Group, frozen=True):
    hermetic: Annotated[bool, _key("only tools that a manifest names", Reload.SESSION)] = False


class Reef(Group, frozen=True):
    tools: Annotated[dict[str, object], _key("tool constraints", Reload.SESSION)] = {}
    runners: Annotated[dict[str, object], _key("script runners", Reload.SESSION)] = {}
    options: ReefOptions = ReefOptions()


class Kernel(Group, frozen=True):
    enabled: Annotated[bool, _key("clients use the shared kernel")] = True
    session: Annotated[
        str, _key("default session of clients, and file name of the daemon's socket")
    ] = "default"
    socket: Annotated[str | None, _restart("explicit socket path")] = None
    autostart: Annotated[bool, _key("clients may start a kernel")] = True
    require_token: Annotated[bool, _live("refuse attachment without a token")] = False
    peer_uids: Annotated[
        tuple[str, ...], _live("decimal uids of peers admitted beside the daemon's own")
    ] = ()
    ephemeral: Annotated[bool, _restart("end with the last client, keep nothing")] = False
    idle_exit_s: Annotated[
        int, _live("end after that long without connection and task; 0 never")
    ] = 0
    drain_timeout_s: Annotated[int, _live("time for running work at shutdown")] = 10
    kill_grace_ms: Annotated[
        int, _live("time between SIGTERM and SIGKILL of workers and children")
    ] = 2_000


class Limits(Group, frozen=True):
    max_frame_bytes: Annotated[int, _live("one input line on the kernel endpoint")] = 16 * MIB
    inline_bytes: Annotated[int, _live("elision: encoded bytes of a value")] = 8 * KIB
    inline_rows: Annotated[int, _live("elision: rows of a table")] = 100
    inline_items: Annotated[int, _live("elision: elements of a list")] = 500
    inline_raw_bytes: Annotated[int, _live("elision: length of a bytes value")] = 4 * KIB
    hard_cap_bytes: Annotated[int, _live("no request lifts a preview above this")] = 64 * KIB
    page_bytes: Annotated[int, _live("one raw or blob page")] = 48 * KIB
    capture_bytes: Annotated[int, _session("output of one command kept in memory")] = 64 * MIB
    spill_bytes: Annotated[int, _session("output of one command spilled to disk")] = GIB
    event_ring: Annotated[int, _restart("events kept per channel, at least 1024")] = 1_024
    event_queue: Annotated[int, _live("events queued per subscription")] = 256
    exec_wall_s: Annotated[int, _live("a submission that runs longer is cancelled; 0 none")] = 0


class Quotas(Group, frozen=True):
    connections: Annotated[int, _live("open connections of the kernel endpoint")] = 256
    connections_per_principal: Annotated[int, _live("the same, per principal")] = 64
    sessions: Annotated[int, _live("sessions with a worker")] = 256
    sessions_per_principal: Annotated[int, _live("the same, per owner")] = 128
    tasks_per_session: Annotated[int, _live("running tasks")] = 64
    tasks_kept: Annotated[int, _live("finished task records per session, oldest dropped")] = 1_000
    plans_per_owner: Annotated[int, _live("stored plans, oldest unapproved dropped")] = 1_000
    ptys_per_session: Annotated[int, _live("open terminals")] = 16
    subscriptions_per_connection: Annotated[int, _live("subscribed channels")] = 256
    transcript_values: Annotated[int, _live("results kept per session, oldest dropped")] = 10_000
    transcript_bytes: Annotated[int, _live("the same, by size")] = 512 * MIB
    publish_per_s: Annotated[int, _live("`events.publish` calls per connection")] = 200
    worker_memory_bytes: Annotated[int, _session("memory of one worker and its children")] = 0
    worker_pids: Annotated[int, _session("processes of one worker")] = 0
    worker_open_files: Annotated[int, _session("descriptors of one worker")] = 4_096
    session_idle_s: Annotated[
        int, _live("stop the worker of an unattached idle session; 0 never")
    ] = 0


class Plans(Group, frozen=True):
    ttl_s: Annotated[int, _live("plans expire that long after they were last planned; 0 never")] = (
        86_400
    )
    approval_ttl_s: Annotated[int, _live("approvals expire that long after they were given")] = 900


class Journal(Group, frozen=True):
    enabled: Annotated[bool, _restart("false: memory only, nothing durable")] = True
    state_dir: Annotated[str | None, _restart("state directory")] = None
    busy_timeout_ms: Annotated[int, _restart("wait for the database lock")] = 5_000
    sync: Annotated[
        str, _restart("`normal`, or `full`: every commit reaches the disk and survives a power cut")
    ] = "normal"
    on_failure: Annotated[
        str, _live("`refuse` new executions when the store fails, or `continue` without a record")
    ] = "refuse"
    output_cap_bytes: Annotated[int, _live("one recorded output")] = 256 * MIB


class Retention(Group, frozen=True):
    interval_s: Annotated[int, _live("time between automatic collections; 0 off")] = 3_600
    blob_ttl_days: Annotated[int, _live("drop unpinned blobs not read for that long; 0 keep")] = 0
    blob_max_bytes: Annotated[int, _live("size budget of all blobs; 0 none")] = 0
    entry_ttl_days: Annotated[int, _live("drop older journal rows; 0 keep")] = 0
    vacuum: Annotated[bool, _live("give freed pages back after a collection")] = True


class Leash(Group, frozen=True):
    policy: Annotated[str | None, _live("policy file; named but unreadable is fatal")] = None


class Tokens(Group, frozen=True):
    path: Annotated[str | None, _restart("token store")] = None
    check_interval_ms: Annotated[int, _live("check of the store between requests")] = 1_000


class Secrets(Group, frozen=True):
    dir: Annotated[str | None, _session("secret store")] = None


class Agents(Group, frozen=True):
    enabled: Annotated[
        bool,
        _restart("serve the agent endpoint (its settings: config.toml in the state directory)"),
    ] = True


class Logging(Group, frozen=True):
    level: Annotated[str, _live("threshold: `error`, `warn`, `info` or `debug`")] = "info"
    format: Annotated[str, _live("`text` or `json`")] = "text"
    file: Annotated[str | None, _live("log file, reopened on SIGHUP; absent: stderr")] = None
    max_bytes: Annotated[int, _live("rotate at this size; 0 never")] = 10 * MIB
    keep: Annotated[int, _live("rotated files kept")] = 5
    source: Annotated[bool, _live("put submitted source into records of level `debug`")] = False


class Metrics(Group, frozen=True):
    listen: Annotated[
        str | None, _restart("`unix:/path` or `127.0.0.1:PORT`; loopback addresses only")
    ] = None
    file: Annotated[str | None, _live("file rewritten every `metrics.interval_s`")] = None
    interval_s: Annotated[int, _live("time between rewrites of `metrics.file`")] = 15


class Mcp(Group, frozen=True):
    socket: Annotated[str | None, _key("socket of the MCP facade's kernel")] = None
    session: Annotated[str | None, _key("session of the MCP facade")] = None
    token_file: Annotated[str | None, _key("file with the MCP facade's bearer secret")] = None


class Attach(Group, frozen=True):
    prompt: Annotated[str, _key("prompt of `shoal attach`")] = (
        "{principal}@{session} {cwd}{jobs}{mark} "
    )
    notices: Annotated[bool, _key("print task and approval notices above the prompt")] = True
    max_rows: Annotated[int, _key("rows printed of one table; more with `:more`")] = 1_000


class Config(Group, frozen=True):
    """The whole tree, resolved."""

    version: Annotated[int, _key("version of the file format")] = 1
    prompt: Prompt = Prompt()
    history: History = History()
    render: Render = Render()
    editor: Editor = Editor()
    completion: Completion = Completion()
    adapters: Adapters = Adapters()
    init: Init = Init()
    aliases: Annotated[dict[str, str], _key("alias = source", Reload.SESSION)] = {}
    env: Annotated[dict[str, str], _key("environment of new sessions", Reload.SESSION)] = {}
    reef: Reef = Reef()
    kernel: Kernel = Kernel()
    limits: Limits = Limits()
    quotas: Quotas = Quotas()
    plans: Plans = Plans()
    journal: Journal = Journal()
    retention: Retention = Retention()
    leash: Leash = Leash()
    tokens: Tokens = Tokens()
    secrets: Secrets = Secrets()
    agents: Agents = Agents()
    logging: Logging = Logging()
    metrics: Metrics = Metrics()
    mcp: Mcp = Mcp()
    attach: Attach = Attach()


class Key(msgspec.Struct, frozen=True):
    """One row of the registry."""

    path: str
    shape: Shape
    default: object
    reload: Reload
    meaning: str


_SHAPES: Final[Mapping[object, Shape]] = {
    bool: Shape.BOOLEAN,
    int: Shape.UNSIGNED,
    str: Shape.STRING,
    tuple[str, ...]: Shape.STRINGS,
    dict[str, str]: Shape.STRING_MAP,
    dict[str, object]: Shape.TABLE,
}


def _shape(hint: object) -> Shape:
    present = [arg for arg in typing.get_args(hint) if arg is not type(None)]
    if type(None) in typing.get_args(hint):
        [hint] = present
    return _SHAPES[hint]


def _walk(group: type[Group], prefix: str) -> Iterator[Key]:
    hints = typing.get_type_hints(group, include_extras=True)
    for field in msgspec.structs.fields(group):
        path = prefix + field.name
        hint = hints[field.name]
        if isinstance(hint, type) and issubclass(hint, Group):
            yield from _walk(hint, path + ".")
            continue
        plain, meta = typing.get_args(hint)
        default = field.default
        if default is msgspec.NODEFAULT:
            default = field.default_factory()
        yield Key(path, _shape(plain), default, meta.extra["reload"], meta.description)


# Every key by its dotted path, in the order of the structs.
KEYS: Final[Mapping[str, Key]] = {key.path: key for key in _walk(Config, "")}

# The tables that hold fixed keys, by dotted path ("" is the file itself): names of their members.
TABLES: Final[Mapping[str, frozenset[str]]] = {
    prefix: frozenset(
        path[len(prefix) + bool(prefix) :].split(".")[0]
        for path in KEYS
        if not prefix or path.startswith(prefix + ".")
    )
    for prefix in sorted({"", *(path.rpartition(".")[0] for path in KEYS)})
}


def lookup(config: Config, path: str) -> object:
    """The value at a dotted path of fixed names. Raises KeyError for any other path."""
    value: object = config
    for name in path.split("."):
        if not isinstance(value, Group) or name not in value.__struct_fields__:
            raise KeyError(path)
        value = getattr(value, name)
    return value


# What the language may see of the configuration: the shell's part, and these of the kernel's.
SHOWN_IN_LANGUAGE: Final = (
    *("version", "prompt", "history", "render", "editor", "completion", "adapters", "init"),
    *("aliases", "env", "reef", "kernel", "journal", "leash"),
)


def shell_snapshot(config: Config) -> dict[str, typing.Any]:
    """The configuration as `config.get` shows it inside the language (chapter 81, section 6.4)."""
    return {name: msgspec.to_builtins(getattr(config, name)) for name in SHOWN_IN_LANGUAGE}
