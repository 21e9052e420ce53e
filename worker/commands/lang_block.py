"""Interpreter blocks: `python3 { ... }` (chapter 40 §10).

A block is an external program whose text travels in its arguments, which leaves its input free for
`.feed`. Adapters, functions and builtins are never asked.

Failure: `type_error` when a block whose text already travels on the input is fed; spawn errors as
everywhere. A failed program raises in statement position only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from worker.commands.run import (
    Position,
    settle,
)
from worker.commands.spawn import spawn
from worker.errors import raised
from worker.values.types import (
    LazyBytes,
    Outcome,
    Span,
    Value,
)

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator

# How each interpreter takes its program in argv; the program is the word after these.
_IN_ARGV: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("sh", "bash", "zsh", "fish", "python", "python3"), ("-c",)),
    **dict.fromkeys(("node", "ruby", "perl", "lua", "Rscript", "osascript"), ("-e",)),
    "php": ("-r",),
    "deno": ("eval",),
    "jq": (),
}


def run_lang_block(
    ev: Evaluator, frame: Any, tool: str, src: str, span: Span | None, position: Position
) -> Value:
    """Run an interpreter block with an empty input."""
    return settle(run_block(ev, tool, src, None, span), position)


def run_block(
    ev: Evaluator, tool: str, src: str, data: bytes | LazyBytes | None, span: Span | None
) -> Outcome:
    """Run a block, fed with `data` when there is some; the outcome is not looked at."""
    options = _IN_ARGV.get(tool)
    program = src.encode("utf-8", "surrogatepass")
    if options is not None:
        argv = [tool.encode(), *(option.encode() for option in options), program]
        return spawn(ev, argv, stdin=data, span=span)
    if data is not None:
        raise raised(
            "type_error",
            f"{tool} reads its program from stdin, so the block cannot be fed data",
            span=span,
        )
    return spawn(ev, [tool.encode()], stdin=program, span=span)
