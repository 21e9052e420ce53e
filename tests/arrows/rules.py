"""The import arrows, and finding what breaks them.

    supervisor -> ipc, leash, journal      worker -> ipc, leash      journal, leash, ipc -> nobody

Every import statement counts, wherever it stands: a late import is an import. The router must never
unpickle what a worker sent, so the modules that can are closed to it.

Failure: `violations` returns one text per broken arrow.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

PACKAGES: Final = frozenset({"supervisor", "worker", "ipc", "leash", "journal"})

ARROWS: Final[Mapping[str, frozenset[str]]] = {
    "supervisor": frozenset({"ipc", "leash", "journal"}),
    "worker": frozenset({"ipc", "leash"}),
    "ipc": frozenset(),
    "leash": frozenset(),
    "journal": frozenset(),
}

# Packages of others, for those whose dependencies are part of the design; the rest may use any.
FOREIGN: Final[Mapping[str, frozenset[str]]] = {
    "ipc": frozenset({"msgspec", "orjson", "prctl"}),
    "leash": frozenset({"blake3", "landlock"}),
    "journal": frozenset({"blake3", "msgspec", "zstandard"}),
}

# What can run code out of bytes.
UNPICKLERS: Final = frozenset({"pickle", "dill", "marshal", "shelve", "cloudpickle"})
CLOSED_TO: Final[Mapping[str, frozenset[str]]] = {"supervisor": UNPICKLERS, "ipc": UNPICKLERS}


def imports(source: str) -> Iterator[tuple[int, str]]:
    """Line and top-level module of every absolute import in a source text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module.split(".")[0]


def broken(package: str, module: str, standard: frozenset[str]) -> str | None:
    """Why a package may not import a module, or None when it may."""
    if module in CLOSED_TO.get(package, frozenset()):
        return f"{package} must not be able to unpickle"
    if module == package or module in ARROWS[package]:
        return None
    if module in PACKAGES:
        return f"no arrow from {package} to {module}"
    allowed = FOREIGN.get(package)
    if allowed is not None and module not in standard and module not in allowed:
        return f"{package} depends on {', '.join(sorted(allowed))} and nothing else"
    return None


def violations(root: Path, standard: frozenset[str]) -> list[str]:
    """Every broken arrow below a tree, as `file:line: reason`."""
    found = []
    for package in sorted(PACKAGES):
        for path in sorted((root / package).rglob("*.py")):
            for line, module in imports(path.read_text()):
                reason = broken(package, module, standard)
                if reason:
                    found.append(f"{path.relative_to(root)}:{line}: {reason} ({module})")
    return found
