"""What drives a stream to its end: collecting, visiting, writing to a file or a channel.

A sink consumes the stream when it is called, pulls until the end, and closes the source however it
finishes: normally, by an error of a stage, or by cancellation.

Failure: `collect` raises `stream_unbounded` before it consumes anything; writing raises `custom`
"PATH: REASON"; the rest is raised by the stages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from worker.evaluate.streams.core import END, Stream
from worker.values.types import LazyBytes, Path, Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator


def drive(ev: Evaluator, stream: Stream, act: Callable[[Value], object]) -> None:
    """Consume the stream, handing every item to `act`."""
    source = stream.consume()
    cancel = ev.cancel
    pull = source.pull
    try:
        while (item := pull(ev, None)) is not END:
            if cancel.cancelled:
                cancel.check()
            act(item)
        cancel.check()
    finally:
        source.close()


def collect(ev: Evaluator, stream: Stream) -> list[Value]:
    """All items of a bounded stream."""
    stream.need_end()
    items: list[Value] = []
    drive(ev, stream, items.append)
    return items


def each(ev: Evaluator, stream: Stream, f: Value) -> None:
    drive(ev, stream, ev.callback(f))


def into(ev: Evaluator, stream: Stream, channel: str) -> None:
    bus = ev.channels
    drive(ev, stream, lambda item: bus.emit(channel, item))


def render(ev: Evaluator, stream: Stream) -> None:
    drive(ev, stream, ev.sink)


def append_lines(ev: Evaluator, stream: Stream, target: str) -> Path:
    """One line per item, written as it arrives; never truncates. Gives the absolute path."""
    from worker.values.methods.files import open_appending

    stream.check_unused()
    path = ev.absolute(target)
    with open_appending(ev, path) as write:
        drive(ev, stream, lambda item: write(_line(item)))
    return Path(path)


def _line(item: Value) -> bytes:
    kind = type(item)
    if kind is str:
        return item.encode() + b"\n"  # type: ignore[no-any-return]
    if kind is bytes:
        return item + b"\n"  # type: ignore[no-any-return]
    if kind is LazyBytes:
        from worker.values.content import resident

        return resident(item) + b"\n"
    from worker.values.json_codec import to_json

    return to_json(item).encode() + b"\n"
