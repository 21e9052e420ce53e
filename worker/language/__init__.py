"""The shell language's syntax: `parse`, the tree it gives, and the errors it raises."""

from worker.language.ast import AST_VERSION, InvalidAst, Program, Span, decode_ast
from worker.language.diagnostics import ParseError
from worker.language.parser import SCRIPT, ParseContext, parse

__all__ = [
    "AST_VERSION",
    "SCRIPT",
    "InvalidAst",
    "ParseContext",
    "ParseError",
    "Program",
    "Span",
    "decode_ast",
    "parse",
]
