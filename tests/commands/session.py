"""What starting a program needs of an evaluator, without the evaluator."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from worker.commands.spawn import spawn
from worker.evaluate.cancel import CancelToken
from worker.evaluate.host import Host
from worker.evaluate.tasks import ProcessGroups
from worker.values.types import MISSING, Outcome

# Programs start without what the test runner happens to have in its environment.
PLAIN_ENVIRONMENT = {b"PATH": os.environb[b"PATH"], b"HOME": b"/", b"LC_ALL": b"C"}


@dataclass
class Session:
    """The attributes `worker.commands.spawn` reads, with the evaluator's names."""

    cwd: str
    env: dict[bytes, bytes] = field(default_factory=lambda: dict(PLAIN_ENVIRONMENT))
    host: Host = field(default_factory=Host)
    cancel: CancelToken = field(default_factory=CancelToken)
    groups: ProcessGroups = field(default_factory=ProcessGroups)
    tail: Any = None

    def absolute(self, path: Any) -> str:
        return os.path.join(self.cwd, path if isinstance(path, str) else path.raw)

    def lookup(self, _name: str) -> Any:
        return MISSING

    def visible_callables(self) -> list[str]:
        return []

    def run(self, *words: str | bytes, **options: Any) -> Outcome:
        argv = [os.fsencode(word) for word in words]
        return spawn(self, argv, **options)  # type: ignore[arg-type]

    def shell(self, script: str, **options: Any) -> Outcome:
        return self.run("sh", "-c", script, **options)


def program(folder: Path, name: str, text: str) -> Path:
    """An executable script in a folder."""
    file = folder / name
    file.write_text(text)
    file.chmod(0o755)
    return file
