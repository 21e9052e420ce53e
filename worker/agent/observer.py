"""What a turn sees of an evaluation it asked for: its start, what it prints, its end.

Called by the evaluator thread. Output of a bare command in statement position is told as it comes;
what a program prints into a value belongs to the value.

Failure: none.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Any

from worker.commands.capture import StreamName
from worker.evaluate.blocks import is_command_statement
from worker.recording import Recorder, StatementRow
from worker.values.render import block, inline, strip_terminal
from worker.values.types import ErrorValue, Outcome, Path, Value


class Observer:
    # `_live` says that the statement that runs is a bare command; `_told` whether it printed
    # something that was told. `text` and `is_error` are set at the end.

    def __init__(
        self,
        started: Callable[[], None],
        output: Callable[[str], None] | None,
        attachments: list[str],
    ) -> None:
        self._started = started
        self._output = output
        self._attachments = attachments
        self._live = False
        self._told = False
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}
        self.began = False
        self.ended = False
        self.text = ""
        self.is_error = False
        self.code = ""
        self.shown = False

    # -- names the evaluation gets -----------------------------------------------------------------

    def names(self) -> dict[str, Value]:
        return {"attachments": [Path(path) for path in self._attachments]}

    # -- evaluation --------------------------------------------------------------------------------

    def begin(self) -> None:
        self.began = True
        self._started()

    def hooks(self, recorder: Recorder) -> ObservedHooks:
        return ObservedHooks(self, recorder)

    def statement(self, node: Any) -> None:
        self._live = is_command_statement(node)
        self._told = False

    def add(self, name: StreamName, chunk: bytes) -> None:
        """What a program printed, as it came (the interface of a tail)."""
        if not self._live or self._output is None:
            return
        decoder = self._decoders.get(name)
        if decoder is None:
            decoder = self._decoders[name] = codecs.getincrementaldecoder("utf-8")("replace")
        text = strip_terminal(decoder.decode(chunk))
        if text:
            self._told = True
            self._output(text)

    def watch(self, on: bool) -> None:
        return None

    def finish(self) -> None:
        return None

    def sink(self, value: Value) -> None:
        """A value that is not the last one and is shown; what was told already is not again."""
        if self._output is None or (isinstance(value, Outcome) and self._told):
            return
        text = shown(value)
        if text:
            self._output(text if text.endswith("\n") else text + "\n")

    def end(self, value: Value, error: ErrorValue | None) -> None:
        """The evaluation is over."""
        self.ended = True
        if error is not None:
            self.is_error = True
            self.code = error.code
            self.text = strip_terminal(block(error))
        else:
            self.text = shown(value)
            self.shown = isinstance(value, Outcome) and self._told


def shown(value: Value) -> str:
    """A value as people read it in a conversation: lists on one line, all else as a block."""
    if type(value) is list and not (value and all(type(item) is dict for item in value)):
        return inline(value)
    return strip_terminal(block(value))


class ObservedHooks:
    """The recorder of a submission with an observer before it."""

    __slots__ = ("_observer", "_recorder")

    def __init__(self, observer: Observer, recorder: Recorder) -> None:
        self._observer = observer
        self._recorder = recorder

    def started(self, program: Any, ordinal: int, source: str) -> StatementRow:
        self._observer.statement(program.stmts[ordinal])
        return self._recorder.started(program, ordinal, source)

    def finished(
        self, row: StatementRow, value: Value, error: BaseException | ErrorValue | None, dur_ns: int
    ) -> None:
        self._recorder.finished(row, value, error, dur_ns)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recorder, name)
