"""`python -m tests.chaos [--rounds N] [--seed N]`: break things for a while; exit 1 when a promise
was broken."""

from __future__ import annotations

import argparse
import signal
import sys
import time

from tests.chaos.run import Broken, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="default: from the clock")
    options = parser.parse_args()
    seed = time.time_ns() % (1 << 32) if options.seed is None else options.seed
    sys.stderr.write(f"seed {seed}\n")
    # Ended from outside, the run still takes its daemon and its file system away.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        summary = run(options.rounds, seed, lambda text: _say(text))
    except Broken as broken:
        sys.stderr.write(f"{broken}\n")
        return 1
    sys.stdout.write(f"{options.rounds} rounds, {summary.promises} promises kept\n")
    for note, count in sorted(summary.notes.items()):
        sys.stdout.write(f"  {note}: {count}\n")
    return 0


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
