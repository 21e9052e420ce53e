"""Run the real program as a user would, in an environment of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipc.client.autostart import PROGRAM

WAIT_S = 60


@dataclass(frozen=True)
class Ran:
    """How a run ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


class Program:
    """The `shoal` program with a home, configuration, state and sockets below one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # Sockets lie below these, and the path of a socket must be short; pytest's are not.
        self.short = Path(tempfile.mkdtemp(prefix="shoal-", dir="/tmp"))
        weakref.finalize(self, shutil.rmtree, self.short, ignore_errors=True)
        self.run_dir = self.short / "run"
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "XDG_RUNTIME_DIR": str(self.run_dir),
            "TMPDIR": str(self.short),
            "SHOAL_NO_AUTOSTART": "1",
            "NO_COLOR": "1",
        }
        self.run_dir.mkdir(mode=0o700)

    @property
    def socket(self) -> Path:
        return self.run_dir / "shoal" / "default.sock"

    @property
    def user_file(self) -> Path:
        return self.root / ".config" / "shoal" / "shoal.toml"

    def configure(self, text: str) -> None:
        self.user_file.parent.mkdir(parents=True, exist_ok=True)
        self.user_file.write_text(text)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, str(PROGRAM), *words]

    def run(
        self,
        *words: str,
        stdin: str | bytes = b"",
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Ran:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            self.command(*words),
            input=data,
            capture_output=True,
            env={**self.environ, **(environ or {})},
            cwd=cwd or self.root,
            timeout=WAIT_S,
            check=False,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    @contextmanager
    def started(self, *words: str, **popen: Any) -> Iterator[subprocess.Popen[str]]:
        """A run that goes on; killed at the end when it still does."""
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with subprocess.Popen(
            self.command(*words), env=self.environ, cwd=self.root, text=True, **{**streams, **popen}
        ) as child:
            try:
                yield child
            finally:
                if child.poll() is None:
                    child.kill()

    @contextmanager
    def kernel(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """A running kernel at `socket`; ended by SIGTERM afterwards."""
        with self.started("kernel", *words, stdout=subprocess.DEVNULL) as child:
            assert child.stderr is not None
            lines = []
            for line in child.stderr:
                if line.startswith("shoal-kernel: ready "):
                    break
                lines.append(line)
            else:
                raise AssertionError("the kernel did not start: " + "".join(lines))
            try:
                yield child
            finally:
                child.terminate()
                # Read on, so that a full pipe cannot keep it from ending.
                child.communicate(timeout=WAIT_S)
