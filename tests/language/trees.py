"""Ways to look at syntax trees in tests: as JSON, and as short outlines without spans."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from worker.language import ParseContext, ParseError, Program, parse
from worker.language.ast import Bool, CmdCall, ExprStmt, Span


def context(*values: str, repl: bool = False) -> ParseContext:
    return ParseContext(repl=repl, values=frozenset(values))


def tree(src: str, *values: str, repl: bool = False) -> dict[str, Any]:
    """The AST JSON of a source, as a client gets it."""
    program = parse(src, context(*values, repl=repl))
    decoded: dict[str, Any] = json.loads(msgspec.json.encode(program))
    return decoded


def without_spans(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: without_spans(value) for key, value in node.items() if key != "span"}
    if isinstance(node, list):
        return [without_spans(item) for item in node]
    return node


def spanless(program: Program) -> Any:
    return without_spans(json.loads(msgspec.json.encode(program)))


def failure(src: str, *values: str, repl: bool = False) -> ParseError:
    """The error of a source that must not parse."""
    with pytest.raises(ParseError) as caught:
        parse(src, context(*values, repl=repl))
    return caught.value


def outline(src: str, *values: str, repl: bool = False) -> str:
    """Statements as s-expressions, `; ` between them: (kind field …).

    Spans, nulls, empty lists and false flags are left out, flags that are set appear by name, and
    expression statements are their expression.
    """
    program = parse(src, context(*values, repl=repl))
    return "; ".join(_outline(stmt) for stmt in program.stmts)


def _outline(node: Any) -> str:
    if isinstance(node, str):
        return json.dumps(node, ensure_ascii=False) if not node or " " in node else node
    if isinstance(node, list):
        return f"[{' '.join(map(_outline, node))}]"
    if not isinstance(node, msgspec.Struct):
        return json.dumps(node)
    if isinstance(node, ExprStmt):
        return _outline(node.expr)
    if isinstance(node, Bool):
        return f"(bool {json.dumps(node.value)})"
    config = node.__struct_config__
    words = [str(config.tag)] if config.tag is not None else []
    for name in node.__struct_fields__:
        value = getattr(node, name)
        if value is None or value is False or value == [] or isinstance(value, Span):
            continue
        if value is True:
            words.append(name)
        elif isinstance(value, CmdCall):
            words += [value.head, *_call_words(value)]
        else:
            words.append(_outline(value))
    return f"({' '.join(words)})"


def _call_words(call: CmdCall) -> list[str]:
    words = [_outline(part) for part in call.args]
    words += [f"{redirect.kind}:{_outline(redirect.target)}" for redirect in call.redirects]
    words += [f"env:{prefix.name}={_outline(prefix.value)}" for prefix in call.env_prefix]
    words += [name for name in ("forced", "background") if getattr(call, name)]
    if call.trailing is not None:
        words.append(f"trailing:{_outline(call.trailing)}")
    return words
