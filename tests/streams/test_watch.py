"""`watch` and `tail` on real files (chapter 30 §14.2).

Nothing sleeps: a pull waits for the event itself, with a deadline far beyond what it takes.
"""

from __future__ import annotations

import gc
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.methods.support import evaluator
from tests.streams.support import Driver
from worker.errors import Raised, raised
from worker.evaluate.host import Clock
from worker.evaluate.streams.core import PENDING, Source
from worker.evaluate.streams.feed import FEED_ITEMS, Feed, FeedSource, StopSignal
from worker.evaluate.streams.notify import Scans, open_notifier
from worker.evaluate.streams.tail import Lines, tail
from worker.evaluate.streams.watch import Events, path_test, watch
from worker.values.types import Glob, Value
from worker.values.types import Path as PathValue

PATIENCE_NS = 20_000_000_000


class Reader:
    """Pulls one source, failing instead of hanging."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._ev: Any = Driver()

    def next(self) -> Any:
        now = self._ev.host.clock.monotonic_ns()
        item = self.source.pull(self._ev, now + PATIENCE_NS)
        assert item is not PENDING, "nothing came"
        return item

    def event(self) -> tuple[str, str]:
        item = self.next()
        return item["path"].raw, item["kind"]

    def until(self, path: Path, kind: str) -> list[tuple[str, str]]:
        """Events up to and with the given one."""
        seen = []
        while (found := self.event()) != (str(path), kind):
            seen.append(found)
        return [*seen, found]

    def taken(self) -> Any:
        """What is there already."""
        return self.source.pull(self._ev, 0)


def watching(folder: Path, target: Value, **named: Value) -> Reader:
    ev = evaluator(str(folder))
    return Reader(watch(ev, [target], named, None).consume())


def tailing(folder: Path, target: Value = "log", **named: Value) -> Reader:
    ev = evaluator(str(folder))
    return Reader(tail(ev, [target], named, None).consume())


@pytest.fixture(autouse=True)
def threads_end() -> Iterator[None]:
    """Every source's thread ends with its source."""
    before = set(threading.enumerate())
    yield
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=20)
        assert not thread.is_alive(), thread.name


def test_watch_tells_creation_change_and_removal(tmp_path: Path) -> None:
    reader = watching(tmp_path, ".")
    (tmp_path / "f").write_text("x")
    assert reader.event() == (f"{tmp_path}/f", "created")
    assert reader.event() == (f"{tmp_path}/f", "modified")
    (tmp_path / "f").unlink()
    assert (f"{tmp_path}/f", "removed") in reader.until(tmp_path / "f", "removed")


def test_watch_events_have_exactly_three_fields(tmp_path: Path) -> None:
    reader = watching(tmp_path, PathValue(str(tmp_path)))
    (tmp_path / "f").touch()
    assert list(reader.next()) == ["path", "kind", "ts"]


def test_renames_and_metadata_count_as_modified(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    reader = watching(tmp_path, ".")
    (tmp_path / "old").chmod(0o600)
    assert reader.event() == (f"{tmp_path}/old", "modified")
    (tmp_path / "old").rename(tmp_path / "new")
    assert reader.event() == (f"{tmp_path}/old", "modified")
    assert reader.event() == (f"{tmp_path}/new", "modified")


def test_reading_gives_no_event(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    reader = watching(tmp_path, ".")
    (tmp_path / "f").read_text()
    (tmp_path / "end").touch()
    assert reader.event() == (f"{tmp_path}/end", "created")


def test_a_recursive_watch_sees_what_is_put_into_new_directories(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    reader = watching(tmp_path, ".")
    (tmp_path / "deep" / "er" / "f").touch()
    reader.until(tmp_path / "deep" / "er" / "f", "created")
    (tmp_path / "new" / "est").mkdir(parents=True)
    (tmp_path / "new" / "est" / "g").touch()
    seen = reader.until(tmp_path / "new" / "est" / "g", "created")
    assert seen.count((f"{tmp_path}/new/est/g", "created")) == 1
    (tmp_path / "new" / "est" / "h").touch()
    reader.until(tmp_path / "new" / "est" / "h", "created")


def test_a_directory_that_moved_away_is_watched_no_more(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    (inside / "d").mkdir(parents=True)
    reader = watching(tmp_path, "in")
    (inside / "d").rename(tmp_path / "out")
    reader.until(inside / "d", "modified")
    (tmp_path / "out" / "f").touch()
    (inside / "end").touch()
    assert f"{inside}/d/f" not in [path for path, _ in reader.until(inside / "end", "created")]


def test_only_true_or_nothing_makes_a_watch_recursive(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for value in (False, 1):
        reader = watching(tmp_path, ".", recursive=value)
        (tmp_path / "d" / f"inner{value}").touch()
        (tmp_path / f"outer{value}").touch()
        seen = reader.until(tmp_path / f"outer{value}", "created")
        assert not [path for path, _ in seen if "inner" in path]


def test_a_watched_file_is_followed_through_replacement(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1")
    (tmp_path / "other").touch()
    reader = watching(tmp_path, "f")
    (tmp_path / "other").write_text("x")
    (tmp_path / "fresh").write_text("2")
    (tmp_path / "fresh").rename(tmp_path / "f")
    (tmp_path / "f").write_text("3")
    assert {reader.event(), reader.event()} == {(f"{tmp_path}/f", "modified")}


def test_a_glob_filters_whole_paths_and_its_star_crosses_slashes(tmp_path: Path) -> None:
    (tmp_path / "src" / "sub").mkdir(parents=True)
    reader = watching(tmp_path, "src/*.c")
    (tmp_path / "src" / "a.h").touch()
    (tmp_path / "b.c").touch()
    (tmp_path / "src" / "sub" / "c.c").touch()
    assert reader.event() == (f"{tmp_path}/src/sub/c.c", "created")


def test_a_glob_value_belongs_to_the_directory_it_was_made_in(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    reader = watching(Path("/"), Glob("*.c", str(tmp_path / "made")))
    (tmp_path / "made" / "a.c").touch()
    assert reader.event() == (f"{tmp_path}/made/a.c", "created")


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/a/*.c", "/a/b.c", True),
        ("/a/*.c", "/a/b/c.c", True),
        ("/a/*.c", "/a/b.h", False),
        ("/a/?", "/a/b", True),
        ("/a/[!b]x", "/a/bx", False),
        ("/a/[!b]x", "/a/cx", True),
        ("/a/[a-c]", "/a/b", True),
        ("/a/[]]", "/a/]", True),
        ("/a.b/*", "/aXb/c", False),
        ("/**/z", "/q/r/z", True),
    ],
)
def test_whole_path_pattern(pattern: str, path: str, matches: bool) -> None:
    assert path_test(pattern)(path) is matches


def test_an_overfull_watch_owes_one_summary() -> None:
    feed = Feed()
    stop = StopSignal()
    events = Events(feed, Clock(), "/w", None)
    feed.owed = events.take_summary
    reader = Reader(FeedSource(feed, stop))
    for number in range(FEED_ITEMS + 20):
        events.deliver(f"/w/{number}", "created")
    assert reader.event() == ("/w/0", "created")
    events.deliver("/w/late", "created")
    for number in range(1, FEED_ITEMS):
        assert reader.event() == (f"/w/{number}", "created")
    summary = reader.next()
    assert list(summary) == ["path", "kind", "ts", "coalesced"]
    assert (summary["path"].raw, summary["kind"], summary["coalesced"]) == ("/w", "modified", True)
    events.deliver("/w/after", "created")
    seen = [reader.next() for _ in range(2)]
    assert [item["path"].raw for item in seen] == ["/w", "/w/after"]
    stop.close()


def test_changes_the_system_lost_count_of_are_one_summary() -> None:
    feed = Feed()
    stop = StopSignal()
    events = Events(feed, Clock(), "/w", None)
    feed.owed = events.take_summary
    events.deliver(None, "modified")
    assert Reader(FeedSource(feed, stop)).next()["coalesced"] is True
    stop.close()


def test_tail_gives_complete_new_lines_only(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("old\n")
    reader = tailing(tmp_path)
    with open(tmp_path / "log", "ab", buffering=0) as file:
        file.write(b"one\r\ntw")
        assert reader.next() == "one"
        file.write(b"o\nbad \xff\n")
        assert reader.next() == "two"
        assert reader.next() == "bad \ufffd"
        file.write(b"no end")
        file.write(b"\n")
        assert reader.next() == "no end"


def test_tail_from_start_reads_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a\nb\nrest")
    reader = tailing(tmp_path, PathValue("log"), from_start=True)
    assert [reader.next(), reader.next()] == ["a", "b"]
    with open(tmp_path / "log", "a") as file:
        file.write(" of it\n")
    assert reader.next() == "rest of it"


def test_a_shrunken_file_is_read_from_its_start(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a long first line\n")
    reader = tailing(tmp_path)
    (tmp_path / "log").write_text("new\n")
    assert reader.next() == "new"


def test_a_file_in_the_same_place_is_read_from_its_start(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("old\n")
    reader = tailing(tmp_path)
    (tmp_path / "next").write_text("first\n")
    (tmp_path / "next").rename(tmp_path / "log")
    assert reader.next() == "first"


def test_another_file_in_the_same_place_must_be_readable_too(tmp_path: Path) -> None:
    feed, stop = Feed(), StopSignal()
    (tmp_path / "log").write_text("old\n")
    secret = tmp_path / "secret"
    secret.write_text("treasure\n")

    def may_read(path: str) -> None:
        if os.path.realpath(path) == str(secret):
            raise raised("leash_denied", "not granted")

    notifier = open_notifier(str(tmp_path / "log"), recursive=False)
    lines = Lines(str(tmp_path / "log"), from_start=True, may_read=may_read)
    (tmp_path / "next").symlink_to(secret)
    (tmp_path / "next").rename(tmp_path / "log")
    lines.run(feed, notifier, stop)
    reader = Reader(FeedSource(feed, stop))
    assert reader.next() == "old"
    with pytest.raises(Raised, match="not granted"):
        reader.next()
    stop.close()


def test_a_tail_that_falls_behind_counts_what_it_dropped(tmp_path: Path) -> None:
    feed = Feed()
    stop = StopSignal()
    (tmp_path / "log").write_bytes(b"".join(b"%d\n" % number for number in range(FEED_ITEMS + 9)))
    lines = Lines(str(tmp_path / "log"), from_start=True)
    reader = Reader(FeedSource(feed, stop))
    lines.read_new(feed, stop)
    assert [reader.next() for _ in range(FEED_ITEMS)] == [str(n) for n in range(FEED_ITEMS)]
    # The marker does not come by itself, but before the next line that fits.
    assert reader.taken() is PENDING
    with open(tmp_path / "log", "ab") as file:
        file.write(b"on\n")
    lines.read_new(feed, stop)
    assert [reader.next(), reader.next()] == [{"dropped": 9}, "on"]
    lines.close()
    stop.close()


def test_dropping_the_stream_stops_the_thread_and_frees_its_files(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    before = sorted(os.listdir("/proc/self/fd"))
    threads = set(threading.enumerate())
    ev = evaluator(str(tmp_path))
    streams = [watch(ev, ["."], {}, None), tail(ev, ["log"], {}, None)]
    started = set(threading.enumerate()) - threads
    assert len(started) == 2
    del streams
    gc.collect()
    for thread in started:
        thread.join(timeout=20)
        assert not thread.is_alive()
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_finished_sink_stops_the_source(tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    ev = evaluator(str(tmp_path))
    stream = watch(ev, ["."], {}, None)
    (started,) = set(threading.enumerate()) - threads
    (tmp_path / "f").touch()
    from worker.values.methods import call_method

    taken = call_method(ev, stream, "take", [1])
    assert len(call_method(ev, taken, "collect", [])) == 1
    started.join(timeout=20)
    assert not started.is_alive()


def test_an_error_of_the_thread_comes_after_the_items_before_it() -> None:
    feed = Feed()
    stop = StopSignal()
    source = FeedSource(feed, stop)
    feed.push("a")
    from worker.errors import raised

    feed.fail(raised("io_error", "tail: gone"))
    reader = Reader(source)
    assert reader.next() == "a"
    with pytest.raises(Raised, match="tail: gone"):
        reader.next()
    stop.close()


def test_a_directory_cannot_be_tailed(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    reader = tailing(tmp_path, from_start=True)
    with pytest.raises(Raised) as caught:
        reader.next()
    assert caught.value.error.code == "io_error"
    assert caught.value.error.msg.startswith("tail: ")


def test_a_tree_deeper_than_any_call_stack_is_watched(tmp_path: Path) -> None:
    depth = 1500
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    try:
        reader = watching(tmp_path, ".")
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        assert reader.event() == (f"{tmp_path}/{'d/' * depth}f", "created")
    finally:
        os.close(here)
        # The test runner's own clean-up would run out of stack.
        subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


def test_a_watch_that_cannot_start_its_thread_frees_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    (tmp_path / "log").touch()
    ev = evaluator(str(tmp_path))
    before = sorted(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for source, target in ((watch, "."), (tail, "log")):
        with pytest.raises(Raised) as caught:
            source(ev, [target], {}, None)
        assert caught.value.error.code == "io_error"
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_listings_tell_the_same_story_where_there_is_no_inotify(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("1")
    (tmp_path / "gone").touch()
    scans = Scans(str(tmp_path), True)
    stop = StopSignal()
    (tmp_path / "old").write_text("22")
    (tmp_path / "gone").unlink()
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "new").touch()
    found = scans.changes(stop)
    assert found is not None
    assert set(found) == {
        (f"{tmp_path}/old", "modified"),
        (f"{tmp_path}/gone", "removed"),
        (f"{tmp_path}/d", "created"),
        (f"{tmp_path}/d/new", "created"),
    }
    stop.set()
    assert scans.changes(stop) is None
    stop.close()
