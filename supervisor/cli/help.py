"""Usage and help texts, made from the declarations of the commands.

Pure. Failure: none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import wrap

from supervisor.cli.options import HELP, Command, Operand, Option

WIDTH = 96


def usage_lines(command: Command) -> Iterator[str]:
    """`usage: ...`, one line per subcommand."""
    lead = "usage: "
    for each in command.commands or (command,):
        parts = [
            full_name(each),
            *map(_option_usage, each.options),
            *map(_operand_usage, each.operands),
        ]
        yield from wrap(
            " ".join(parts),
            WIDTH,
            initial_indent=lead,
            subsequent_indent=" " * 11,
            break_on_hyphens=False,
            break_long_words=False,
        )
        lead = " " * 7


def full_name(command: Command) -> str:
    return f"shoal {command.path or command.name}"


def _option_usage(option: Option) -> str:
    text = f"{option.name}\u00a0{option.value}" if option.value else option.name
    return f"[{text}]" + ("..." if option.repeat else "")


def _operand_usage(operand: Operand) -> str:
    text = operand.name + ("..." if operand.many else "")
    return text if operand.required else f"[{text}]"


def usage(command: Command) -> str:
    return "\n".join(usage_lines(command)).replace("\u00a0", " ")


def help_text(command: Command) -> str:
    """Everything `--help` prints for a command."""
    parts = [usage(command), "", command.summary]
    if command.about:
        parts += ["", command.about.strip()]
    if command.commands:
        parts += ["", "Commands:", *_columns((c.name, c.summary) for c in command.commands)]
    if command.operands:
        parts += ["", "Operands:", *_columns((o.name, o.help) for o in command.operands)]
    for sub in command.commands:
        if sub.options:
            rows = [(option_name(o), o.help) for o in sub.options]
            parts += ["", f"Options of {sub.name}:", *_columns(rows)]
    rows = [(option_name(option), option.help) for option in (*command.options, HELP)]
    parts += ["", "Options:", *_columns(rows)]
    return "\n".join(parts) + "\n"


def option_name(option: Option) -> str:
    names = ", ".join((*option.aliases, option.name))
    return f"{names} {option.value}" if option.value else names


def _columns(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    rows = list(rows)
    left = min(28, max(len(name) for name, _ in rows))
    for name, text in rows:
        lines = wrap(text, WIDTH - left - 4, break_on_hyphens=False) or [""]
        if len(name) > left:
            yield f"  {name}"
        else:
            yield f"  {name:<{left}}  {lines.pop(0)}".rstrip()
        for line in lines:
            yield f"  {'':<{left}}  {line}"


TOP_USAGE = """\
usage: shoal [-c SOURCE [ARG...] | FILE [ARG...] | COMMAND ...]
       shoal -- FILE [ARG...]
"""

TOP_ABOUT = """\
Long-lived, structured shell sessions behind a Unix socket.

  shoal exec 'ls.where(.size > 1kb)'         run in a session of the kernel, started when needed
  shoal -c 'echo hello'                        run once, without a kernel
  shoal script.shl a b                         run a script file
  shoal kernel                                 run the kernel in this terminal
"""


def top_help(commands: Iterable[Command]) -> str:
    """What `shoal --help` prints."""
    rows = [(command.name, command.summary) for command in commands]
    options = [
        (
            "-c, --command SOURCE",
            "run SOURCE without a kernel; the words after it are its arguments",
        ),
        ("-h, --help", "print this text and exit"),
        ("-V, --version", "print the version and exit"),
    ]
    parts = [TOP_USAGE, TOP_ABOUT, "Commands:", *_columns(rows), "", "Options:", *_columns(options)]
    return "\n".join([*parts, "", "`shoal COMMAND --help` tells more about a command.", ""])
