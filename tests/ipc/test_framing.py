"""The line and control framers, fed with bytes and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipc.framing import (
    CONTROL_HEADER,
    FrameSplitter,
    FrameTooLarge,
    LineFramer,
    control_frame,
)


def test_a_line_comes_out_without_its_lf() -> None:
    assert LineFramer().feed(b"one\n") == ([b"one"], None)


def test_an_unfinished_line_waits_for_its_lf() -> None:
    framer = LineFramer()
    assert framer.feed(b"on") == ([], None)
    assert framer.held == 2
    assert framer.feed(b"e\ntw") == ([b"one"], None)
    assert framer.feed(b"o\n") == ([b"two"], None)
    assert framer.held == 0


def test_a_line_of_exactly_the_limit_with_its_lf_is_a_frame() -> None:
    assert LineFramer(8).feed(b"1234567\n") == ([b"1234567"], None)


@pytest.mark.parametrize(
    "pieces", [[b"12345678\n"], [b"1234", b"5678\n"], [b"%c" % c for c in b"12345678"]]
)
def test_one_byte_more_than_the_limit_is_too_large(pieces: list[bytes]) -> None:
    framer = LineFramer(8)
    failures = [framer.feed(piece)[1] for piece in pieces]
    assert isinstance(failures[-1], FrameTooLarge)
    assert framer.held == 0


def test_the_limit_is_decided_before_the_lf_comes() -> None:
    framer = LineFramer(8)
    assert framer.feed(b"1234567") == ([], None)
    lines, failure = framer.feed(b"8")
    assert lines == []
    assert failure is not None and failure.seen == 8


def test_lines_before_an_oversize_one_are_delivered() -> None:
    lines, failure = LineFramer(8).feed(b"a\nb\n123456789\n")
    assert lines == [b"a", b"b"]
    assert failure is not None


@given(st.lists(st.binary(max_size=12).filter(lambda line: b"\n" not in line)), st.data())
def test_any_cut_of_the_stream_gives_the_same_lines(
    lines: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    framer = LineFramer(64)
    found: list[bytes] = []
    at = 0
    while at < len(stream):
        size = data.draw(st.integers(1, 7))
        fed, failure = framer.feed(stream[at : at + size])
        assert failure is None
        found += fed
        at += size
    assert found == lines


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 4))), st.integers(1, 9))
def test_control_frames_survive_any_cut(frames: list[tuple[bytes, int]], size: int) -> None:
    stream = b"".join(control_frame(payload, fds) for payload, fds in frames)
    splitter = FrameSplitter()
    found: list[tuple[bytes, int]] = []
    for at in range(0, len(stream), size):
        found += splitter.feed(stream[at : at + size])
    assert found == frames


def test_a_control_frame_above_the_limit_is_refused_by_its_header() -> None:
    with pytest.raises(FrameTooLarge):
        FrameSplitter(100).feed(CONTROL_HEADER.pack(101, 0))
    assert FrameSplitter(100).feed(CONTROL_HEADER.pack(100, 0)) == []


def test_too_many_descriptors_are_refused_by_the_header() -> None:
    with pytest.raises(FrameTooLarge):
        FrameSplitter().feed(CONTROL_HEADER.pack(1, 33))
