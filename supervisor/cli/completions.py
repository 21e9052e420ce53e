"""`shoal completions`: completion scripts for other shells, made from the registry.

Failure: UsageError for a shell that is not supported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from supervisor.cli.call import Call
from supervisor.cli.failure import Exit
from supervisor.cli.options import HELP, Command, Option, UsageError
from supervisor.cli.registry import COMMANDS

# Words in the `value` of an option that stand for a file.
_FILES: Final = frozenset({"FILE", "PATH", "DIR", "P", "F"})


def run(call: Call) -> int:
    shell = call.operands[0]
    script = _SHELLS.get(shell)
    if script is None:
        raise UsageError(f"unsupported shell `{shell}`; expected bash, zsh, or fish")
    call.out.text("\n".join(script()) + "\n")
    return Exit.SUCCESS


def _options(command: Command) -> tuple[Option, ...]:
    return (*command.options, HELP)


def _names(options: Iterable[Option]) -> str:
    return " ".join(name for option in options for name in (option.name, *option.aliases))


def _all_commands() -> Iterator[Command]:
    for command in COMMANDS:
        yield command
        yield from command.commands


def _bash() -> Iterator[str]:
    words = " ".join(command.name for command in COMMANDS)
    file_options = sorted(
        {
            name
            for command in _all_commands()
            for option in command.options
            if option.value in _FILES
            for name in (option.name, *option.aliases)
        }
    )
    yield from (
        "# bash completion for shoal",
        "_shoal() {",
        "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}",
        "    local command=${COMP_WORDS[1]} sub=${COMP_WORDS[2]} words=",
        "    COMPREPLY=()",
        f"    case $previous in {'|'.join(file_options)})",
        '        COMPREPLY=($(compgen -f -- "$current")); return ;;',
        "    esac",
        "    if [ $COMP_CWORD -eq 1 ]; then",
        f'        COMPREPLY=($(compgen -W "{words} -c -h --help -V --version" -- "$current")'
        ' $(compgen -f -- "$current"))',
        "        return",
        "    fi",
        '    case "$command $sub" in',
    )
    for command in COMMANDS:
        for sub in command.commands:
            names = _names((*_options(command), *sub.options))
            yield f'        "{command.name} {sub.name}") words="{names}" ;;'
        subs = " ".join(sub.name for sub in command.commands)
        yield f'        "{command.name} "*) words="{subs} {_names(_options(command))}" ;;'
    yield from (
        "    esac",
        '    COMPREPLY=($(compgen -W "$words" -- "$current"))',
        '    case $current in -*) ;; *) COMPREPLY+=($(compgen -f -- "$current")) ;; esac',
        "}",
        "complete -o filenames -F _shoal shoal",
    )


def _zsh() -> Iterator[str]:
    yield from (
        "#compdef shoal",
        "_shoal() {",
        "    local -a commands",
        "    commands=(",
    )
    for command in COMMANDS:
        yield f"        {_zsh_quote(f'{command.name}:{command.summary}')}"
    yield from (
        "    )",
        "    if (( CURRENT == 2 )); then",
        "        _describe command commands",
        "        _files",
        "        return",
        "    fi",
        "    case $words[2] in",
    )
    for command in COMMANDS:
        specs = [_zsh_option(option) for option in _options(command)]
        subs = command.commands
        for sub in subs:
            specs += [_zsh_option(option) for option in sub.options]
        if subs:
            specs.append(_zsh_quote(f"2:command:({' '.join(sub.name for sub in subs)})"))
        yield f"        {command.name})"
        yield f"            _arguments {' '.join(dict.fromkeys(specs))} '*:file:_files' ;;"
    yield from ("    esac", "}", '_shoal "$@"')


def _zsh_option(option: Option) -> str:
    text = option.help.replace("[", "(").replace("]", ")").replace(":", " ")
    value = ""
    if option.value:
        value = f":{option.value.lower()}:{'_files' if option.value in _FILES else ''}"
    return _zsh_quote(f"{option.name}[{text}]{value}")


def _zsh_quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish() -> Iterator[str]:
    yield "# fish completion for shoal"
    for command in COMMANDS:
        yield (
            f"complete -c shoal -n __fish_use_subcommand -a {command.name} "
            f"-d {_fish_quote(command.summary)}"
        )
        seen = f"'__fish_seen_subcommand_from {command.name}'"
        for sub in command.commands:
            yield f"complete -c shoal -n {seen} -a {sub.name} -d {_fish_quote(sub.summary)}"
            for option in sub.options:
                both = f"'__fish_seen_subcommand_from {command.name}; and "
                both += f"__fish_seen_subcommand_from {sub.name}'"
                yield _fish_option(both, option)
        for option in _options(command):
            yield _fish_option(seen, option)


def _fish_option(condition: str, option: Option) -> str:
    parts = [f"complete -c shoal -n {condition} -l {option.name.lstrip('-')}"]
    parts += [f"-s {alias[1:]}" for alias in option.aliases if not alias.startswith("--")]
    if option.value:
        parts.append("-r" if option.value in _FILES else "-x")
    return " ".join([*parts, f"-d {_fish_quote(option.help)}"])


def _fish_quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_SHELLS: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
