"""Counters, gauges and histograms of the router in Prometheus' text format (chapter 81 §10).

Incrementing is a dictionary operation on the loop's thread. Gauges that mirror other state are read
when the text is made.

Failure: none; an unknown name is a programming error and raises KeyError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

BUCKETS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)

# name -> (type, label names, help)
FAMILIES: Final[dict[str, tuple[str, tuple[str, ...], str]]] = {
    "shoal_connections_total": ("counter", ("endpoint",), "accepted connections"),
    "shoal_connections_rejected_total": ("counter", ("reason",), "refused connections"),
    "shoal_requests_total": ("counter", ("endpoint", "method", "code"), "answered requests"),
    "shoal_frames_rejected_total": ("counter", ("endpoint", "reason"), "malformed frames"),
    "shoal_worker_restarts_total": ("counter", ("reason",), "workers that ended unexpectedly"),
    "shoal_exec_total": ("counter", ("outcome",), "ended submissions"),
    "shoal_exec_duration_seconds": ("histogram", (), "run time of submissions"),
    "shoal_auth_failures_total": ("counter", ("reason",), "refused authentications"),
    "shoal_events_published_total": ("counter", ("kind",), "published events"),
    "shoal_quota_rejections_total": ("counter", ("quota",), "requests refused by a quota"),
    "shoal_journal_errors_total": ("counter", ("op",), "failed writes of the store"),
    "shoal_build_info": ("gauge", ("version", "python"), "always 1"),
    "shoal_start_time_seconds": ("gauge", (), "start of the process"),
    "shoal_reload_success": ("gauge", (), "whether the last reload worked"),
    "shoal_config_generation": ("gauge", (), "rises with each reload"),
}

Labels = tuple[str, ...]


class Metrics:
    # Counter values by (family, label values); histograms as one list of bucket counts plus sum.

    def __init__(self) -> None:
        self._counters: dict[tuple[str, Labels], float] = {}
        self._histograms: dict[tuple[str, Labels], list[float]] = {}
        self._gauges: dict[str, tuple[Labels, Callable[[], dict[Labels, float]], str]] = {}

    def count(self, family: str, *labels: str, by: float = 1) -> None:
        key = (family, labels)
        self._counters[key] = self._counters.get(key, 0) + by

    def set(self, family: str, value: float, *labels: str) -> None:
        """Set a gauge."""
        self._counters[family, labels] = value

    def observe(self, family: str, seconds: float, *labels: str) -> None:
        row = self._histograms.setdefault((family, labels), [0.0] * (len(BUCKETS_S) + 2))
        for index, bound in enumerate(BUCKETS_S):
            if seconds <= bound:
                row[index] += 1
        row[-2] += 1
        row[-1] += seconds

    def gauge(
        self, name: str, labels: Labels, read: Callable[[], dict[Labels, float]], about: str
    ) -> None:
        """Register a gauge whose values are read when the text is made."""
        self._gauges[name] = (labels, read, about)

    def value(self, family: str, *labels: str) -> float:
        return self._counters.get((family, labels), 0)

    def text(self) -> str:
        """The exposition text."""
        lines: list[str] = []
        for name, (kind, label_names, help_text) in FAMILIES.items():
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
            if kind == "histogram":
                lines += self._histogram_lines(name, label_names)
            else:
                lines += [
                    f"{name}{_label_text(label_names, labels)} {_number(value)}"
                    for (family, labels), value in sorted(self._counters.items())
                    if family == name
                ]
        for name, (label_names, read, help_text) in self._gauges.items():
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} gauge"]
            lines += [
                f"{name}{_label_text(label_names, labels)} {_number(value)}"
                for labels, value in sorted(read().items())
            ]
        return "\n".join(lines) + "\n"

    def _histogram_lines(self, name: str, label_names: tuple[str, ...]) -> list[str]:
        lines: list[str] = []
        for (family, labels), row in sorted(self._histograms.items()):
            if family != name:
                continue
            bounds = [_number(bound) for bound in BUCKETS_S] + ["+Inf"]
            for bound, count in zip(bounds, [*row[: len(BUCKETS_S)], row[-2]], strict=True):
                text = _label_text((*label_names, "le"), (*labels, bound))
                lines.append(f"{name}_bucket{text} {_number(count)}")
            plain = _label_text(label_names, labels)
            lines += [f"{name}_sum{plain} {row[-1]!r}", f"{name}_count{plain} {_number(row[-2])}"]
        return lines


def _label_text(names: tuple[str, ...], values: Labels) -> str:
    if not names:
        return ""
    pairs = (
        '{}="{}"'.format(name, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
        for name, value in zip(names, values, strict=True)
    )
    return "{" + ",".join(pairs) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
