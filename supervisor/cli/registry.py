"""Every subcommand, declared. Help, completion scripts and docs/cli.md are made from this table.

A command that is not here does not exist: it is neither dispatched nor listed.

Failure: none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from supervisor.cli.call import COLOR_OPTION as COLOR
from supervisor.cli.call import JSON_OPTION, LISTING_OPTIONS, TARGET_OPTIONS
from supervisor.cli.options import Command, Operand, Option, Reader
from supervisor.cli.readers import one_of, read_limit, read_status, read_time, read_ttl, unsigned

# What runs source without a kernel: `-c`, a file, standard input.
LOCAL: Final = "supervisor.cli.local_run:run"

STATE_DIR: Final = Option("--state-dir", "state directory", value="PATH", aliases=("--data-dir",))


def _journal(
    name: str,
    text: str,
    value: str,
    read: Reader = str,
    *,
    repeat: bool = False,
    dest: str = "",
) -> Option:
    """An option of `journal query`, with its own message for a missing value."""
    missing = f"{name} requires value"
    return Option(name, text, value, read, repeat=repeat, missing=missing, dest=dest)


_KERNEL: Final = Command(
    "kernel",
    "run the kernel in this terminal",
    run="supervisor.cli.kernel:run",
    prefix="shoal-kernel",
    about="""\
Serves the kernel endpoint (and the agent endpoint) until SIGTERM or Ctrl-C; prints one line
`shoal-kernel: ready PATH` on stderr when it can be reached. SIGHUP reloads configuration, policy
and tokens. A kernel is started by itself when `shoal exec` and others find none.""",
    options=(
        Option("--session", "file name of the derived socket, nothing else", value="NAME"),
        Option("--socket", "socket to bind", value="PATH"),
        replace(STATE_DIR, help="directory of journal, blobs, tokens and agent data"),
        Option("--policy", "policy; missing or bad is fatal", value="FILE"),
        Option("--config", "user's configuration file", value="FILE"),
        Option("--ephemeral", "end with the last client; keeps nothing without --state-dir"),
        Option("--in-memory", "no durable state"),
        Option("--agent-endpoint", "serve the agent endpoint (the default)"),
        Option("--no-agent-endpoint", "do not serve the agent endpoint"),
        Option("--require-token", "refuse attachment without a token"),
        Option("--max-sessions", "sessions with a worker", value="N", read=unsigned),
        Option("--max-connections", "open connections", value="N", read=unsigned),
        Option(
            "--idle-exit",
            "end after that long without connection and task; 0 never",
            value="SECONDS",
            read=unsigned,
        ),
        Option(
            "--drain-timeout", "time for running work at the end", value="SECONDS", read=unsigned
        ),
        Option(
            "--log-level",
            "error, warn, info or debug",
            value="LEVEL",
            read=one_of("error", "warn", "info", "debug"),
        ),
        Option("--log-format", "text or json", value="FORMAT", read=one_of("text", "json")),
        Option("--log-file", "log destination (default: stderr)", value="FILE"),
        Option("--foreground", "stay in the foreground (the default)"),
        Option("--daemonize", "detach when ready; exits 0 then, else as the kernel did"),
        Option("--pid-file", "file with the process id, while ready", value="FILE"),
        Option("--metrics-listen", "`unix:/path` or `127.0.0.1:PORT`", value="ADDR"),
        Option("--check", "load configuration and policy, bind nothing, exit 0 or 1"),
    ),
)

_BUDGETS: Final = (
    Option("--max-bytes", "encoded bytes before a value is elided", value="N", read=unsigned),
    Option("--max-rows", "table rows before a value is elided", value="N", read=unsigned),
    Option("--max-items", "list elements before a value is elided", value="N", read=unsigned),
)

_EXEC: Final = Command(
    "exec",
    "run source in a session of the kernel",
    run="supervisor.cli.execute:run",
    about="""\
  shoal exec 'let n = 6; n * 7'            bindings stay in the session for the next call
  shoal exec --session build 'make all'    another session
  shoal exec --json --position value 'ls'  the value, structured
  shoal exec --background 'sleep 60'       prints the task; see `shoal task`

Starts a kernel when none listens. Ctrl-C cancels the work. A command that fails ends with its own
status; 2 means that the source does not parse, 75 that the program needs approval, 77 that it is
denied, 69 that no kernel was reached.""",
    options=(
        *TARGET_OPTIONS,
        Option(
            "--position",
            "`stmt` (a failed command raises) or `value` (it is a value)",
            value="stmt|value",
            read=one_of("stmt", "value"),
        ),
        Option("--plan", "show the effects the source would have, run nothing"),
        Option("--background", "run as a task and print its name at once"),
        Option(
            "--timeout-ms",
            "wait that long, then leave the work as a task",
            value="N",
            read=unsigned,
        ),
        *_BUDGETS,
        JSON_OPTION,
        Option("--raw", "print the exact text or bytes of the value"),
        Option("--quiet", "print no result"),
        COLOR,
        Option("--file", "read the source from a file", value="FILE", aliases=("-f",)),
    ),
    operands=(Operand("SOURCE", "source text; `-` reads it from stdin", required=False),),
)

_RUN: Final = Command(
    "run",
    "run a script file without a kernel",
    run="supervisor.cli.local_run:run_file",
    about="The same as `shoal FILE`, also for a file named like a command.",
    operands=(
        Operand("FILE", "the script", rest=True),
        Operand("ARG", "its arguments", required=False, many=True, rest=True),
    ),
)

_STATUS: Final = Command(
    "status",
    "what the kernel is doing",
    run="supervisor.cli.status:run",
    about="Needs operator authority, which the user who runs the kernel has.",
    options=(*TARGET_OPTIONS, *LISTING_OPTIONS),
)

_EVENTS: Final = Command(
    "events",
    "follow or publish events",
    about="""\
  shoal events tail journal                   every submission, as it ends
  shoal events tail user.build --limit 20     the newest twenty of your own channel, and on
  shoal events publish user.build '{"ok":true}'""",
    options=(*TARGET_OPTIONS, JSON_OPTION, COLOR),
    commands=(
        Command(
            "tail",
            "print a channel's events as they come",
            run="supervisor.cli.events:tail",
            options=(
                Option(
                    "--since", "first print what came after this number", value="N", read=unsigned
                ),
                Option(
                    "--limit", "at most that many of the backlog, newest", value="N", read=unsigned
                ),
                Option("--no-follow", "end after the backlog"),
            ),
            operands=(
                Operand("CHANNEL", "journal, session.transcript, render, task.N, user.*, ..."),
            ),
        ),
        Command(
            "publish",
            "publish on a channel that begins with `user.`",
            run="supervisor.cli.events:publish",
            options=(Option("--string", "send text that is no JSON as a string"),),
            operands=(Operand("CHANNEL", "a `user.*` channel"), Operand("JSON", "the payload")),
        ),
        Command(
            "channels", "list the channels of the session", run="supervisor.cli.events:channels"
        ),
    ),
)

_TIMES: Final = "Unix nanoseconds, an RFC 3339 time, or a span such as `2h`"

_JOURNAL: Final = Command(
    "journal",
    "look into the durable record",
    prefix="shoal-history",
    default="query",
    about="""\
Reads the state directory, beside a running kernel or without one. With --remote the kernel answers
instead, under the rules for the attached principal.

  shoal journal --limit 20 --status failed
  shoal journal show 17
  shoal journal blob HASH > file""",
    options=(
        replace(STATE_DIR, help="state directory (default: the one of the kernel)"),
        Option("--remote", "ask the running kernel"),
        *(option for option in TARGET_OPTIONS if option.name != "--session"),
        *LISTING_OPTIONS,
    ),
    commands=(
        Command(
            "query",
            "entries, newest first",
            run="supervisor.cli.journal:query",
            unknown_option="unknown query option {}",
            options=(
                _journal("--since", f"entries from then on: {_TIMES}", "TIME", read_time),
                _journal("--until", "entries up to then", "TIME", read_time),
                _journal("--principal", "sent by this principal", "P"),
                _journal("--effects", "with this kind of effect", "KIND", repeat=True),
                _journal("--head", "whose first word is this", "W"),
                _journal("--status", "`ok` or `failed`", "ok|failed", read_status),
                _journal("--session", "of this session", "S", dest="of_session"),
                _journal(
                    "--kind",
                    "`submission` (default), `statement` or `all`",
                    "KIND",
                    one_of("submission", "statement", "all"),
                ),
                _journal("--limit", "at most that many (default 100)", "N", read_limit),
            ),
        ),
        Command(
            "show",
            "one entry and its outputs",
            run="supervisor.cli.journal:show",
            operands=(Operand("ID", "entry id"),),
        ),
        Command(
            "blob",
            "print stored content",
            run="supervisor.cli.journal:blob",
            options=(
                Option("--offset", "start there", value="N", read=unsigned),
                Option("--length", "at most that many bytes", value="N", read=unsigned),
            ),
            operands=(Operand("HASH", "64 hex digits"),),
        ),
        Command(
            "pin",
            "keep content from being collected",
            run="supervisor.cli.maintenance:pin",
            operands=(Operand("HASH", "64 hex digits", missing="pin requires HASH"),),
        ),
        Command(
            "unpin",
            "no longer keep it",
            run="supervisor.cli.maintenance:unpin",
            operands=(Operand("HASH", "64 hex digits", missing="unpin requires HASH"),),
        ),
        Command("pins", "everything that is kept, and why", run="supervisor.cli.maintenance:pins"),
        Command(
            "gc",
            "what a collection would remove, as JSON; --apply removes it",
            run="supervisor.cli.maintenance:gc",
            unknown_option="unknown gc option {}",
            options=(
                Option(
                    "--ttl",
                    "content not read for that long",
                    value="SECONDS",
                    read=unsigned,
                    missing="--ttl requires value",
                ),
                Option(
                    "--budget",
                    "then the oldest, until the rest fits",
                    value="BYTES",
                    read=unsigned,
                    missing="--budget requires value",
                ),
                Option("--apply", "do it"),
            ),
        ),
        Command(
            "undo",
            "put back the files that an entry changed",
            run="supervisor.cli.maintenance:undo",
            options=(Option("--root", "change nothing outside of this directory", value="PATH"),),
            operands=(Operand("ID", "entry id"),),
        ),
        Command(
            "tail",
            "follow the channel `journal` of the running kernel",
            run="supervisor.cli.journal:tail",
            options=(
                Option(
                    "--since", "first print what came after this number", value="SEQ", read=unsigned
                ),
            ),
        ),
    ),
)

_TASK: Final = Command(
    "task",
    "see and control background work",
    options=(*TARGET_OPTIONS, *LISTING_OPTIONS),
    commands=(
        Command("list", "tasks of the session", run="supervisor.cli.task:list_tasks"),
        Command(
            "show",
            "one task's record",
            run="supervisor.cli.task:show",
            operands=(Operand("TASK", "`task:N` or `N`"),),
        ),
        Command(
            "wait",
            "wait for a task's end; exit 0 completed, 1 failed, 130 cancelled, 75 timeout",
            run="supervisor.cli.task:wait",
            options=(Option("--timeout", "give up after that long", value="S", read=unsigned),),
            operands=(Operand("TASK", "`task:N` or `N`"),),
        ),
        Command(
            "cancel",
            "cancel a task",
            run="supervisor.cli.task:cancel",
            options=(Option("--wait", "wait for its end"),),
            operands=(Operand("TASK", "`task:N` or `N`"),),
        ),
        Command(
            "suspend",
            "hold a running task",
            run="supervisor.cli.task:suspend",
            operands=(Operand("TASK", "`task:N` or `N`"),),
        ),
        Command(
            "resume",
            "let a held task go on",
            run="supervisor.cli.task:resume",
            operands=(Operand("TASK", "`task:N` or `N`"),),
        ),
        Command(
            "output",
            "print a finished task's value",
            run="supervisor.cli.task:output",
            options=(Option("--raw", "the exact text or bytes"),),
            operands=(Operand("TASK", "`task:N` or `N`"),),
        ),
    ),
)

_SESSION: Final = Command(
    "session",
    "list, share and close sessions",
    options=(*TARGET_OPTIONS, *LISTING_OPTIONS),
    commands=(
        Command(
            "list",
            "your sessions and those shared with you",
            run="supervisor.cli.session:list_sessions",
            options=(Option("--all", "every session; needs operator authority"),),
        ),
        Command(
            "share",
            "let other principals attach to a session",
            run="supervisor.cli.session:share",
            options=(
                Option(
                    "--mode",
                    "what guests may do: `full` or `read`",
                    value="full|read",
                    read=one_of("full", "read"),
                ),
            ),
            operands=(
                Operand("NAME", "session"),
                Operand("PRINCIPAL", "who may attach", many=True),
            ),
        ),
        Command(
            "unshare",
            "withdraw that",
            run="supervisor.cli.session:unshare",
            operands=(
                Operand("NAME", "session"),
                Operand("PRINCIPAL", "who may not attach any more", many=True),
            ),
        ),
        Command(
            "close",
            "end a session for good; its journal stays",
            run="supervisor.cli.session:close",
            options=(Option("--force", "also with running work or other attachments"),),
            operands=(Operand("NAME", "session"),),
        ),
    ),
)

_CONFIG: Final = Command(
    "config",
    "show and check configuration",
    options=(
        JSON_OPTION,
        Option("--config", "user's configuration file", value="FILE"),
    ),
    commands=(
        Command(
            "show",
            "resolved values",
            run="supervisor.cli.configuration:show",
            operands=(
                Operand("KEY", "a key or a section, such as `quotas.sessions`", required=False),
            ),
        ),
        Command(
            "check",
            "validate files; exit 0 clean, 1 warnings, 2 errors",
            run="supervisor.cli.configuration:check",
            operands=(
                Operand("FILE", "files (default: those in effect)", required=False, many=True),
            ),
        ),
        Command("sources", "the files considered", run="supervisor.cli.configuration:sources"),
    ),
)

_STORE: Final = Option("--store", "token store", value="FILE")

_TOKEN: Final = Command(
    "token",
    "create, list and revoke bearer secrets",
    prefix="shoal-token",
    about="""\
  shoal token create agent:fmt --cap fs.read --ttl 3600 > token
  shoal token list
  shoal token revoke ID

`create` prints the secret once; only its digest is stored. A running kernel notices changes.""",
    unknown_command="usage: shoal-token create|list|revoke",
    options=(_STORE, replace(STATE_DIR, help="state directory with the store"), JSON_OPTION),
    commands=(
        Command(
            "create",
            "make a token and print its secret",
            run="supervisor.cli.token:create",
            unknown_option="unknown create option {}",
            options=(
                Option(
                    "--cap",
                    "narrow it to this kind of effect",
                    value="VALUE",
                    repeat=True,
                    missing="--cap requires value",
                ),
                Option(
                    "--ttl",
                    "let it expire after that long",
                    value="SECONDS",
                    read=read_ttl,
                    missing="--ttl requires seconds",
                ),
            ),
            operands=(
                Operand("PRINCIPAL", "who it speaks for", missing="create PRINCIPAL [PROFILE]"),
                Operand("PROFILE", "a label (default: `default`)", required=False),
            ),
        ),
        Command("list", "every token, oldest first", run="supervisor.cli.token:list_tokens"),
        Command(
            "revoke",
            "end a token",
            run="supervisor.cli.token:revoke",
            operands=(Operand("ID", "the token's id", missing="revoke ID"),),
        ),
    ),
)

_METRICS: Final = Command(
    "metrics",
    "print the kernel's metrics in Prometheus' text format",
    run="supervisor.cli.status:metrics",
    options=TARGET_OPTIONS,
)

_FMT: Final = Command(
    "fmt",
    "format source",
    run="supervisor.cli.fmt:run",
    about="""\
Without files stdin is formatted to stdout; files are rewritten in place when they change. The text
is made from the syntax tree: comments and layout are lost.""",
    unknown_option="unknown fmt option `{}`",
    options=(Option("--check", "write nothing; exit 1 when something would change"),),
    operands=(Operand("FILE", "files to format", required=False, many=True),),
)

_COMPLETIONS: Final = Command(
    "completions",
    "print a completion script for bash, zsh or fish",
    run="supervisor.cli.completions:run",
    about="""\
  shoal completions bash > ~/.local/share/bash-completion/completions/shoal
  shoal completions zsh > "${fpath[1]}/_shoal"
  shoal completions fish > ~/.config/fish/completions/shoal.fish""",
    operands=(Operand("SHELL", "bash, zsh or fish"),),
)

# In the order of `shoal --help`.
_DECLARED: Final = (
    _KERNEL,
    _EXEC,
    _RUN,
    _STATUS,
    _EVENTS,
    _JOURNAL,
    _TASK,
    _SESSION,
    _TOKEN,
    _METRICS,
    _CONFIG,
    _FMT,
    _COMPLETIONS,
)


def _with_paths(command: Command, above: str = "") -> Command:
    """The same declaration, every part knowing its full name."""
    path = f"{above} {command.name}".strip()
    subs = tuple(_with_paths(sub, path) for sub in command.commands)
    return replace(command, path=path, commands=subs)


COMMANDS: Final[tuple[Command, ...]] = tuple(map(_with_paths, _DECLARED))

_BY_NAME: Final = {command.name: command for command in COMMANDS}


def named(name: str) -> Command | None:
    return _BY_NAME.get(name)
