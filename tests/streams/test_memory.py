"""Large inputs pass through streams in constant memory."""

from __future__ import annotations

import tracemalloc

import pytest

from tests.methods.support import evaluator

PASSES = [
    "(0..300000).stream().map(n => n + 1).where(n => n % 2 == 0).each(n => n)",
    "(0..300000).stream().scan(0, (a, n) => a + n).dedupe().window(3).enumerate().each(n => n)",
    "(0..1000).stream().flat_map(n => 0..300).each(n => n)",
    "(0..300000).stream().zip((0..300000).stream()).merge([1].stream()).each(n => n)",
]


@pytest.mark.parametrize("source", PASSES)
def test_a_pass_keeps_nothing(source: str) -> None:
    ev = evaluator()
    ev.evaluate_source("(0..10).stream().map(n => n).each(n => n)")
    tracemalloc.start()
    try:
        ev.evaluate_source(source)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000


def test_lines_of_a_large_text_are_cut_as_they_are_pulled() -> None:
    from worker.evaluate.streams.sources import stream_of_lines
    from worker.values.methods import call_method

    text = "some line of text\n" * 200_000
    ev = evaluator()
    closure = ev.evaluate_source("let f = n => n\nf")
    tracemalloc.start()
    try:
        call_method(ev, stream_of_lines(text), "each", [closure])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000
