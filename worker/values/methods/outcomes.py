"""The methods an outcome has of its own (chapter 21 §11); every other goes to its `out`.

Failure: none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from worker.values.methods.registry import method
from worker.values.types import Outcome, Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

OUTCOME: Final = ("outcome",)


@method("stdout", on=OUTCOME, result="bytes", doc="The raw output.")
def stdout(ev: Evaluator, recv: Outcome) -> Value:
    return recv.stdout


@method("stderr", on=OUTCOME, result="bytes", doc="The raw error output.")
def stderr(ev: Evaluator, recv: Outcome) -> Value:
    return recv.stderr
