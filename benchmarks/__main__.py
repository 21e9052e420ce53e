"""`python -m benchmarks [--json] [--filter TEXT] [--list]`: measure, print ratios, exit 1 on a
miss."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from typing import Final

import msgspec

from benchmarks import agents, authority, commands, daemon_calls, durability, language
from benchmarks.report import Benchmark, Row, table

ALL: Final[dict[str, Benchmark]] = {
    "exec": daemon_calls.exec_latency,
    "start": daemon_calls.session_start,
    "throughput": daemon_calls.throughput,
    "memory": daemon_calls.idle_sessions,
    "abuse": daemon_calls.abusive_clients,
    "language": language.speed,
    "streams": language.stream_memory,
    "authority": authority.judging,
    "saving": durability.saving,
    "restoring": durability.restoring,
    "query": durability.query,
    "events": durability.events,
    "commands": commands.starting,
    "terminals": commands.terminals,
    "agents": agents.turns,
    "uploads": agents.uploads,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--filter", default="", help="run the groups whose name has this text")
    parser.add_argument("--list", action="store_true", help="name the groups and end")
    options = parser.parse_args()
    names = [name for name in ALL if options.filter in name]
    if options.list:
        sys.stdout.write("\n".join(names) + "\n")
        return 0
    rows: list[Row] = []
    for name in names:
        sys.stderr.write(f"measuring {name} ...\n")
        rows += ALL[name]()
    if options.json:
        documents = [dataclasses.asdict(row) | {"met": row.met} for row in rows]
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(documents), indent=2).decode())
    else:
        sys.stdout.write(table(rows) + "\n")
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
