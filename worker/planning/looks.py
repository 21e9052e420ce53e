"""What the planner looks at on disk: directories for globs, scripts, sizes, programs.

Every look is subject to the principal's read check, as the same look would be at run time
(chapter 50 §4.1). A refused look answers like one at nothing, with None, and the caller makes the
construct `opaque`.

Failure: none; what cannot be read is None.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from leash.effects import FS_READ, files, normal_path
from worker.commands.lookup import find_program
from worker.commands.reef.hashes import HashCache
from worker.errors import Raised
from worker.language import ParseError, ast, parse
from worker.values.globs import expand
from worker.values.types import Glob, Path, Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

SCRIPT_BYTES_MAX: Final = 4 << 20
_SUFFIX: Final = ".shl"
WILDCARDS: Final = frozenset("*?[")

# Shared by all derivations of the worker; an entry holds for one content of one file.
_hashes: Final = HashCache()


class Looks:
    """Looks as the principal of the running call may take them; `check_time` ends the walk."""

    def __init__(self, ev: Evaluator, check_time: Callable[[], None]) -> None:
        self._ev = ev
        self._check_time = check_time

    def may_read(self, path: str) -> bool:
        try:
            self._ev.host.authority.check(files(FS_READ, [normal_path(path)]))
        except Raised:
            return False
        return True

    # -- globs -------------------------------------------------------------------------------------

    def expand(self, glob: Glob) -> list[Path] | None:
        """The matches the principal may read, sorted; None when it may not look at all."""
        if not self.may_read(leading_directory(glob)):
            return None
        try:
            found = expand(glob, self._check_time)
        except Raised:
            return None
        self._check_time()
        return [path for path in found if self.may_read(path.raw)]

    def without_globs(self, values: tuple[Value, ...]) -> Iterator[Value]:
        """Values with each glob replaced by its matches; None for a glob nobody may look at."""
        for value in values:
            if type(value) is not Glob:
                yield value
                continue
            matches = self.expand(value)
            if matches is None:
                yield None
            else:
                yield from matches

    # -- directories and files ---------------------------------------------------------------------

    def directory(self, path: str) -> str | None:
        """Where entering a directory leads: its real path when it exists."""
        return os.path.realpath(path) if self.may_read(path) else None

    def is_directory(self, path: str) -> bool | None:
        return os.path.isdir(path) if self.may_read(path) else None

    def file_size(self, path: str) -> int | None:
        """The size of an existing regular file, for the estimates."""
        if not self.may_read(path):
            return None
        try:
            info = os.lstat(path)
        except (OSError, ValueError):
            return None
        return info.st_size if stat.S_ISREG(info.st_mode) else None

    def script(self, path: str) -> ast.Program | None:
        """A file of the language, parsed; None when it cannot be read or parsed now."""
        if not self.may_read(path):
            return None
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
            with open(fd, "rb") as file:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    return None
                source = file.read(SCRIPT_BYTES_MAX + 1)
            if len(source) > SCRIPT_BYTES_MAX:
                return None
            return parse(source.decode())
        except (OSError, ValueError, ParseError, RecursionError):
            return None
        finally:
            self._check_time()

    def module(self, path: str) -> str:
        """The file a module path names: with the suffix, unless it has one or only the bare name is
        a file."""
        if os.path.splitext(path)[1]:
            return path
        suffixed = path + _SUFFIX
        return path if os.path.isfile(path) and not os.path.isfile(suffixed) else suffixed

    # -- programs ----------------------------------------------------------------------------------

    def on_path(self, name: str) -> bool:
        """Whether a bare name is a program on PATH."""
        if "/" in name or "." in name:
            return False
        return find_program(name, self._ev.env, self._ev.cwd) is not None

    def program_hash(self, name: str) -> str:
        """The content hash of the file a program name resolves to, or the empty text.

        Tool scopes come first, but only what they have locked: finding out more would start
        programs.
        """
        path = self._locked_tool(name) or find_program(name, self._ev.env, self._ev.cwd)
        if path is None:
            return ""
        try:
            return _hashes.content_hash(os.path.join(self._ev.cwd, path))
        except (OSError, ValueError):
            return ""
        finally:
            self._check_time()

    def _locked_tool(self, name: str) -> str | None:
        reef = self._ev.host.reef
        if reef is None or "/" in name:
            return None
        try:
            view = reef.look(self._ev)
        except Raised:
            return None
        entry = view.entries.get(name) if view.mentions(name) else None
        return None if entry is None else entry.path


def leading_directory(glob: Glob) -> str:
    """The concrete directory that a glob's matches lie below."""
    pattern = glob.pattern
    whole = pattern if pattern.startswith("/") else os.path.join(glob.origin, pattern)
    concrete: list[str] = []
    for part in whole.split("/")[:-1]:
        if not WILDCARDS.isdisjoint(part):
            break
        concrete.append(part)
    return normal_path("/".join(concrete) or "/")
