"""`make demo` runs to its end, and leaves nothing running."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.arrows.rules import ROOT

WAIT_S = 90


def test_demo_shows_every_step_and_succeeds(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for sign in ("shoal-kernel: ready", "worker_lost", "out:1 = 42", "exit 0, socket gone: True"):
        assert sign in done.stdout
    [place] = re.findall(r"ready (/\S+)/kernel\.sock", done.stdout)
    assert not Path(place).exists()
