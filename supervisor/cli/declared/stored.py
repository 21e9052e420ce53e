"""Commands that read and change what is stored: journal, tokens, configuration, source files.

Failure: none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from supervisor.cli.call import (
    JSON_OPTION,
    LISTING_OPTIONS,
    STATE_DIR_OPTION,
    TARGET_OPTIONS,
)
from supervisor.cli.declared.agents import CONFIG_COMMANDS
from supervisor.cli.options import Command, Operand, Option, Reader
from supervisor.cli.readers import one_of, read_limit, read_status, read_time, read_ttl, unsigned


def _filter(
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


_TIMES: Final = "Unix nanoseconds, an RFC 3339 time, or a span such as `2h`"

JOURNAL: Final = Command(
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
        replace(STATE_DIR_OPTION, help="state directory (default: the one of the kernel)"),
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
                _filter("--since", f"entries from then on: {_TIMES}", "TIME", read_time),
                _filter("--until", "entries up to then", "TIME", read_time),
                _filter("--principal", "sent by this principal", "P"),
                _filter("--effects", "with this kind of effect", "KIND", repeat=True),
                _filter("--head", "whose first word is this", "W"),
                _filter("--status", "`ok` or `failed`", "ok|failed", read_status),
                _filter("--session", "of this session", "S", dest="of_session"),
                _filter(
                    "--kind",
                    "`submission` (default), `statement` or `all`",
                    "KIND",
                    one_of("submission", "statement", "all"),
                ),
                _filter("--limit", "at most that many (default 100)", "N", read_limit),
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

BACKUP: Final = Command(
    "backup",
    "archives of a state directory",
    about="""\
  shoal backup create state.tar
  shoal backup verify state.tar
  shoal backup restore state.tar --into ~/.local/state/shoal

`create` works beside a running kernel; `restore` needs a directory that no kernel uses.""",
    options=(replace(STATE_DIR_OPTION, help="state directory to back up"), JSON_OPTION),
    commands=(
        Command(
            "create",
            "make an archive; `-` writes it to standard output",
            run="supervisor.cli.backup:create",
            options=(
                Option("--no-blobs", "leave stored content out"),
                Option("--with-secrets", "put the secret store in"),
            ),
            operands=(Operand("FILE", "archive to write"),),
        ),
        Command(
            "verify",
            "check every hash and the database",
            run="supervisor.cli.backup:verify",
            operands=(Operand("FILE", "archive"),),
        ),
        Command(
            "restore",
            "check an archive and unpack it",
            run="supervisor.cli.backup:restore",
            options=(
                Option("--into", "directory to restore into", value="DIR"),
                Option("--drop-tokens", "without bearer tokens"),
                Option("--force", "also into a directory that is not empty"),
            ),
            operands=(Operand("FILE", "archive"),),
        ),
    ),
)

_STORE: Final = Option("--store", "token store", value="FILE")

TOKEN: Final = Command(
    "token",
    "create, list and revoke bearer secrets",
    prefix="shoal-token",
    about="""\
  shoal token create agent:fmt --cap fs.read --ttl 3600 > token
  shoal token list
  shoal token revoke ID

`create` prints the secret once; only its digest is stored. A running kernel notices changes.""",
    unknown_command="usage: shoal-token create|list|revoke",
    options=(_STORE, replace(STATE_DIR_OPTION, help="state directory with the store"), JSON_OPTION),
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

_SECRET_USAGE: Final = "usage: shoal-secret set NAME < value | list | delete NAME"

SECRET: Final = Command(
    "secret",
    "set, list and delete secrets",
    prefix="shoal-secret",
    about="""\
  printf %s "$KEY" | shoal secret set deploy-key
  shoal secret list
  shoal secret delete deploy-key

Scripts use them by name: `secret.get("deploy-key")`. No command prints a value.""",
    unknown_command=_SECRET_USAGE,
    options=(JSON_OPTION,),
    commands=(
        Command(
            "set",
            "store standard input under a name",
            run="supervisor.cli.secret:set_secret",
            operands=(Operand("NAME", "its name", missing=_SECRET_USAGE),),
        ),
        Command("list", "the names, sorted", run="supervisor.cli.secret:list_secrets"),
        Command(
            "delete",
            "forget a secret",
            run="supervisor.cli.secret:delete",
            operands=(Operand("NAME", "its name", missing=_SECRET_USAGE),),
        ),
    ),
)

CONFIG: Final = Command(
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
        *CONFIG_COMMANDS,
    ),
)

FMT: Final = Command(
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

COMPLETIONS: Final = Command(
    "completions",
    "print a completion script for bash, zsh or fish",
    run="supervisor.cli.completions:run",
    about="""\
  shoal completions bash > ~/.local/share/bash-completion/completions/shoal
  shoal completions zsh > "${fpath[1]}/_shoal"
  shoal completions fish > ~/.config/fish/completions/shoal.fish""",
    operands=(Operand("SHELL", "bash, zsh or fish"),),
)
