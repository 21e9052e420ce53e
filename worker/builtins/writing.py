"""`save`: a value into a file (chapter 31 §3.7).

The bytes of each type, the check and the undo record are those of the method `.save`, which does
the work.

Failure: `arg_error` for anything but a path and a value, `custom` `PATH: ...` when the file cannot
be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.builtins.effects import Operands, writes
from worker.builtins.registry import Call, Undo, builtin
from worker.errors import arg_error
from worker.values.types import Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator


def save_value(ev: Evaluator, values: list[Value]) -> Value:
    """Write the second value to the first; gives what `.save` gives."""
    from worker.values.methods import call_method

    if len(values) != 2:
        raise arg_error("save expects (path, value)")
    target, value = values
    return call_method(ev, value, "save", [target], {})


@builtin(
    "save",
    usage="save PATH VALUE -> value",
    effects=writes(Operands.FIRST),
    undo=Undo.RESTORE_BYTES,
)
def save(call: Call) -> Value:
    """Write a value to a file and give it back."""
    return save_value(call.ev, call.args.values())
