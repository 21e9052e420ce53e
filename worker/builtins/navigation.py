"""`cd pwd pushd popd dirs j jump`: where the session is and has been (chapter 31 §4.1).

The working directory belongs to the evaluator, always as a resolved absolute path; the process
never changes its own. Every successful change remembers the directory it left and counts a visit.

Failure: `arg_error` with the system's text for a directory that cannot be entered, `custom` for a
change inside a closure body and for an empty stack, `not_found` when a jump finds nothing.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

from worker.builtins.authority import check_session_write
from worker.builtins.effects import SESSION_WRITE
from worker.builtins.frecency import NavigationStore
from worker.builtins.listing import as_os_error
from worker.builtins.registry import Call, builtin
from worker.commands.site import home_directory
from worker.errors import arg_error, not_found, os_text, raised
from worker.values.types import MISSING, Path, Value, display_name

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

_NS_PER_S: Final = 1_000_000_000


def navigation_store(ev: Evaluator) -> NavigationStore:
    """The store of the host; a host without one gets one that lives as long as it does."""
    if ev.host.navigation is None:
        ev.host.navigation = NavigationStore()
    store: NavigationStore = ev.host.navigation
    return store


def _now_s(ev: Evaluator) -> int:
    return int(ev.host.clock.now_ns() // _NS_PER_S)


def _at_top_level(call: Call, verb: str) -> None:
    if call.ev.body_depth > 0:
        raise raised(
            "custom",
            f"{verb} is only allowed at session top level; use `with cwd:` inside a fn body",
        )
    check_session_write(call.ev)


def _enterable(verb: str, path: str) -> str:
    """The real path of a directory that can be entered."""
    try:
        real = os.path.realpath(path, strict=True)
        if not os.path.isdir(real):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(real, os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except (OSError, ValueError) as error:
        text = os_text(as_os_error(error))
        raise arg_error(f"{verb} {display_name(path)}: {text}") from None
    return real


def _enter(ev: Evaluator, real: str) -> None:
    ev.prev_cwd = ev.cwd
    ev.cwd = real
    navigation_store(ev).visit(real, _now_s(ev))


def _stack(ev: Evaluator) -> list[Value]:
    return [Path(ev.cwd), *(Path(saved) for saved in ev.dir_stack)]


def _target(call: Call, verb: str, value: Value) -> str:
    if type(value) is not str and type(value) is not Path:
        raise arg_error(f"{verb} expects path")
    return _enterable(verb, call.ev.absolute(value))


@builtin("pwd", usage="pwd -> path")
def pwd(call: Call) -> Path:
    """The session's working directory."""
    return Path(call.ev.cwd)


@builtin("dirs", usage="dirs -> list<path>")
def dirs(call: Call) -> list[Value]:
    """The directory stack: the working directory first, then the saved ones, newest first."""
    return _stack(call.ev)


@builtin("cd", usage="cd [PATH] -> path\ncd - -> path", effects=SESSION_WRITE)
def cd(call: Call) -> Path:
    """Enter a directory, the home directory when none is given, with `-` the previous one."""
    _at_top_level(call, "cd")
    ev = call.ev
    wanted = call.args.first()
    if wanted is MISSING:
        real = _enterable("cd", home_directory(ev))
    elif wanted == "-":
        if ev.prev_cwd is None:
            raise raised("custom", "cd: OLDPWD not set")
        real = _enterable("cd", ev.prev_cwd)
    else:
        real = _target(call, "cd", wanted)
    _enter(ev, real)
    return Path(real)


@builtin("pushd", usage="pushd PATH -> list<path>\npushd -> list<path>", effects=SESSION_WRITE)
def pushd(call: Call) -> list[Value]:
    """Save the working directory and enter another; without one swap with the newest saved."""
    _at_top_level(call, "pushd")
    ev = call.ev
    wanted = call.args.first()
    if wanted is MISSING:
        if not ev.dir_stack:
            raise raised("custom", "pushd: no other directory on the stack to swap with")
        real = _enterable("pushd", ev.dir_stack[0])
        ev.dir_stack[0] = ev.cwd
    else:
        real = _target(call, "pushd", wanted)
        ev.dir_stack.insert(0, ev.cwd)
    _enter(ev, real)
    return _stack(ev)


@builtin("popd", usage="popd -> list<path>", effects=SESSION_WRITE)
def popd(call: Call) -> list[Value]:
    """Enter the newest saved directory and drop it from the stack."""
    _at_top_level(call, "popd")
    ev = call.ev
    if not ev.dir_stack:
        raise raised("custom", "popd: directory stack is empty")
    real = _enterable("popd", ev.dir_stack[0])
    del ev.dir_stack[0]
    _enter(ev, real)
    return _stack(ev)


def _jump(call: Call) -> Path:
    """Enter the directory the query names, else the best remembered one that matches it."""
    _at_top_level(call, "jump")
    ev = call.ev
    values = call.args.values()
    if len(values) > 1:
        raise arg_error("jump takes at most one query")
    query = values[0] if values else None
    if type(query) is Path:
        query = query.raw
    if query is not None and type(query) is not str:
        raise arg_error("jump expects a text query")
    real = _jump_target(ev, query)
    _enter(ev, real)
    return Path(real)


def _jump_target(ev: Evaluator, query: str | None) -> str:
    if query and "\0" not in query and os.path.isdir(ev.absolute(query)):
        return _enterable("jump", ev.absolute(query))
    for path in navigation_store(ev).ranked(query, _now_s(ev)):
        if os.path.isdir(path) and os.access(path, os.X_OK):
            return os.path.realpath(path)
    hint = "cd into directories first, they are remembered by use"
    if query:
        raise not_found(f'jump: no matching directory for "{display_name(query)}"', hint=hint)
    raise not_found("jump: no directory history yet", hint=hint)


@builtin("j", usage="j [QUERY] -> path", effects=SESSION_WRITE)
def j(call: Call) -> Path:
    """Jump to the best remembered directory; the short spelling of `jump`."""
    return _jump(call)


@builtin("jump", usage="jump [QUERY] -> path", effects=SESSION_WRITE)
def jump(call: Call) -> Path:
    """Jump to the directory the query names, else to the best remembered one that matches it."""
    return _jump(call)
