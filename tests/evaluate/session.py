"""Programs run by a real evaluator in a directory of their own, and what came of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from worker.errors import Raised
from worker.evaluate.cancel import CancelToken
from worker.evaluate.evaluator import Evaluator, Position, bare_evaluator
from worker.evaluate.host import EchoMode, Host
from worker.evaluate.threads import run_on_evaluator_stack
from worker.values.access import decoded_out
from worker.values.inline import inline
from worker.values.types import ErrorValue, Outcome, Value


def shown_text(value: Value) -> str:
    """What a shown value says: the output of a command, the inline form of anything else."""
    if isinstance(value, Outcome):
        return str(decoded_out(value)) if value.ok else f"status {value.status}"
    return inline(value)


@dataclass
class Session:
    """One evaluator; `shown` collects what the sink gets, `notes` the diagnostic lines."""

    cwd: Path
    echo: EchoMode = "all"
    shown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        host = Host(
            sink=lambda value: self.shown.append(shown_text(value)),
            echo=self.echo,
            stderr_note=self.notes.append,
        )
        self.evaluator: Evaluator = bare_evaluator(str(self.cwd), host)

    def run(self, src: str, position: Position = "stmt", **options: Any) -> Value:
        """The value of the last statement, on a thread with the stack of an evaluator."""
        return run_on_evaluator_stack(self.evaluator.evaluate_source, src, position, **options)

    def text(self, src: str, position: Position = "stmt") -> str:
        """The inline form of the value."""
        return inline(self.run(src, position))

    def error(self, src: str) -> ErrorValue:
        """The language error the program raises."""
        try:
            value = self.run(src)
        except Raised as failure:
            return failure.error
        raise AssertionError(f"raised nothing, gave {inline(value)}: {src}")

    def fresh_token(self) -> CancelToken:
        """A token for the next program, as every submission has one of its own."""
        self.evaluator.cancel = CancelToken()
        return self.evaluator.cancel

    def write(self, name: str, text: str) -> Path:
        path = self.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path
