"""Canonical source of a syntax tree (chapter 10 §15).

`parse(format_program(tree))` in the same context gives the same tree, spans aside, and formatting
that again changes nothing. Comments and layout are not in the tree and therefore lost.

Parentheses are where the grammar is delicate: `(n + 1)` is a command when nothing is known to bind
`n`. So the formatter follows bindings as the parser does and asks the parser's own rules how a text
would be read; where parentheses would change the reading the tree can only have come from a text
without them, and they are left out.

Failure: none for trees that a parse gave. Trees from elsewhere may hold what no source can say
(negative literals, names that are not identifiers); these are written as closely as possible.
"""

from __future__ import annotations

import re
from typing import Final

from worker.language import ast
from worker.language.ast import Block, Expr, Pattern, Program, Stmt
from worker.language.cursor import debug_text
from worker.language.parser import SCRIPT, ParseContext, ensure_recursion_limit
from worker.language.readings import LOGICAL, Place, leads_with_command
from worker.language.spelling import (
    flag_text,
    float_text,
    raw_payload,
    record_key,
    string_text,
    time_text,
    type_text,
    word_text,
)
from worker.language.statements import Parser
from worker.language.tokens import REPL_ONLY

INDENT: Final = "  "
LINE_END: Final = "\\n"

_BINARY_SIGNS: Final = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "rem": "%", "eq": "==", "ne": "!=",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "in": "in", "and": "&&", "or": "||",
    "coalesce": "??",
}  # fmt: skip
_ASSIGN_SIGNS: Final = {"set": "=", "add": "+=", "sub": "-=", "mul": "*=", "div": "/="}
_REDIRECT_SIGNS: Final = {"out": ">", "append": ">>", "in": "<"}
_UNARY_SIGNS: Final = {"not": "!", "neg": "-"}

_LONE_BACKSLASH: Final = re.compile(r"(?:^|[ ^])\\\Z").search
_CONTINUATION_WORD: Final = re.compile(r"(?:catch|else)(?![A-Za-z0-9_])").match

# Nodes whose text stands on its own before a postfix form and beside any operator.
_ATOMS: Final = (
    ast.Null, ast.Bool, ast.Int, ast.Float, ast.Str, ast.StrInterp, ast.Size, ast.Duration,
    ast.Time, ast.DateTime, ast.Regex, ast.Var, ast.ListExpr, ast.FieldExpr, ast.Index,
    ast.MethodCall, ast.FnCall, ast.LangBlock,
)  # fmt: skip
# Expressions that a following `{` leaves alone.
_HEADER_ATOMS: Final = (
    ast.Null, ast.Bool, ast.Int, ast.Float, ast.Str, ast.StrInterp, ast.Size, ast.Duration,
    ast.Time, ast.DateTime, ast.Regex, ast.Var, ast.ListExpr, ast.RecordExpr, ast.Index,
)  # fmt: skip


def format_program(program: Program, context: ParseContext = SCRIPT) -> str:
    """Source text with one statement per line and an LF after the last; empty for no statements."""
    ensure_recursion_limit()
    formatter = _Formatter(context)
    return "".join(f"{text}\n" for text in formatter.statements(program.stmts, ""))


class _Formatter:
    # The place being written; its names change as statements are written, in source order.
    _place: Place
    # How many string holes the place is in.
    _holes: int

    def __init__(self, context: ParseContext) -> None:
        self._place = Place(context)
        self._holes = 0

    # --- statements ------------------------------------------------------------------------------

    def statements(self, stmts: list[Stmt], indent: str) -> list[str]:
        texts: list[str] = []
        for stmt in stmts:
            text = self._statement(stmt, indent)
            # On a line of its own this command would continue the expression before it.
            if texts and _continues_previous(text):
                text = f";{text}"
            texts.append(text)
        return texts

    def _statement(self, stmt: Stmt, indent: str) -> str:
        match stmt:
            case ast.ExprStmt(expr=expr):
                return self._expression_statement(expr, indent)
            case ast.Let():
                return self._let(stmt, indent)
            case ast.Assign(target=target, op=op, value=value):
                sign = _ASSIGN_SIGNS[op]
                return f"{self._atom(target, indent)} {sign} {self._full(value, indent)}"
            case ast.Fn(decl=decl):
                return self._function(decl, indent)
            case ast.Alias(name=name, target=target):
                return f"alias {name} = {self._command(target, indent)}"
            case ast.Use(path=path):
                return _command_line(["use", path])
            case ast.Return(value=value):
                return f"return {self._full(value, indent)}" if value is not None else "return"
            case ast.Break():
                return "break"
            case ast.Continue():
                return "continue"
            case ast.For():
                items = self._header(stmt.iter, indent)
                body = self._place.with_patterns(
                    [stmt.pattern], lambda: self._block(stmt.body, indent)
                )
                return f"for {self._pattern(stmt.pattern)} in {items} {body}"
            case ast.While(cond=cond, body=body):
                return f"while {self._header(cond, indent)} {self._block(body, indent)}"

    def _expression_statement(self, expr: Expr, indent: str) -> str:
        if isinstance(expr, ast.Cmd):
            head, args, redirects, tail = self._command_pieces(expr.call, indent)
            text = _command_line([*head, *args, *redirects, *tail])
            if self._place.states_command(text):
                return text
            if self._place.reads_as_command(text):
                return f"({text})"
            # `NAME => …`: a blank after the `=` would assign to NAME.
            arrow = "".join(args[:1] + redirects[:1])
            return _command_line([*head, arrow, *args[1:], *redirects[1:], *tail])
        text = self._full(expr, indent)
        if self._place.states_expression(text) or leads_with_command(expr):
            return text
        return f"({text})"

    def _let(self, stmt: ast.Let, indent: str) -> str:
        export = "export " if stmt.exported else ""
        keyword = "var" if stmt.mutable else "let"
        ty = f": {type_text(stmt.ty)}" if stmt.ty is not None else ""
        init = self._full(stmt.init, indent)
        self._place.bind(stmt.pattern)
        return f"{export}{keyword} {self._pattern(stmt.pattern)}{ty} = {init}"

    def _function(self, decl: ast.FnDecl, indent: str) -> str:
        params = [self._parameter(param, indent) for param in decl.params]
        names = [param.name for param in decl.params]
        if decl.rest is not None:
            ty = f": {type_text(decl.rest.ty)}" if decl.rest.ty is not None else ""
            params.append(f"...{decl.rest.name}{ty}")
            names.append(decl.rest.name)
        export = "export " if decl.exported else ""
        ret = f" -> {type_text(decl.ret)}" if decl.ret is not None else ""
        body = self._place.with_names(names, lambda: self._block(decl.body, indent))
        return f"{export}fn {decl.name}({', '.join(params)}){ret} {body}"

    def _parameter(self, param: ast.Param, indent: str) -> str:
        ty = f": {type_text(param.ty)}" if param.ty is not None else ""
        default = f" = {self._full(param.default, indent)}" if param.default is not None else ""
        return f"{param.name}{ty}{default}"

    # --- blocks ----------------------------------------------------------------------------------

    def _block(self, block: Block, indent: str) -> str:
        """A block where nothing else can stand."""
        if not block.stmts:
            return "{}"
        inner = indent + INDENT
        lines = self._place.with_names(
            [],
            lambda: "".join(f"{inner}{text}\n" for text in self.statements(block.stmts, inner)),
        )
        return f"{{\n{lines}{indent}}}"

    def _block_expression(self, block: Block, indent: str) -> str:
        """A block where a record could stand as well."""
        text = self._block(block, indent)
        if text == "{}" or self._place.opens_record(text):
            return f"{{;{text[1:]}"
        return text

    # --- expressions -----------------------------------------------------------------------------

    def _full(self, expr: Expr, indent: str) -> str:
        """Where a full expression is read: initializers, arguments, items, bodies, statements."""
        match expr:
            case ast.Binary():
                return self._binary(expr, indent)
            case ast.RangeExpr():
                return self._range(expr, indent)
            case ast.Unary(op=op, expr=operand):
                return f"{_UNARY_SIGNS[op]}{self._operand(operand, indent)}"
            case ast.Catch():
                return self._catch(expr, indent)
            case ast.Lambda():
                return self._lambda(expr, indent)
            case ast.Cmd(call=call):
                return self._place.group(expr, self._command(call, indent))
            case ast.RecordExpr(fields=fields):
                return self._record(fields, indent)
            case ast.BlockExpr(block=block):
                return self._block_expression(block, indent)
            case ast.If():
                return self._if(expr, indent)
            case ast.Match():
                return self._match(expr, indent)
            case ast.Try():
                binder = f"{self._pattern(expr.pattern)} " if expr.pattern is not None else ""
                body = self._block(expr.body, indent)
                return f"try {body} catch {binder}{self._block(expr.handler, indent)}"
            case ast.With():
                return self._with(expr, indent)
            case ast.Spawn(body=body):
                return f"spawn {self._block(body, indent)}"
        return self._atom(expr, indent)

    def _operand(self, expr: Expr, indent: str) -> str:
        """After a prefix, at a range's end, before a postfix form: atoms, or in parentheses."""
        text = self._full(expr, indent)
        if isinstance(expr, _ATOMS) and not text.startswith("-"):
            return text
        if isinstance(expr, (ast.Binary, ast.Cmd)):
            return text
        return self._place.group(expr, text)

    def _header(self, expr: Expr, indent: str) -> str:
        """Before a construct's own block."""
        text = self._full(expr, indent)
        if isinstance(expr, (*_HEADER_ATOMS, ast.Binary, ast.Cmd)):
            return text
        if isinstance(expr, ast.Unary) and isinstance(expr.expr, _HEADER_ATOMS):
            return text
        if isinstance(expr, ast.RangeExpr) and isinstance(expr.end, _HEADER_ATOMS):
            return text
        return self._place.group(expr, text)

    def _binary(self, node: ast.Binary, indent: str) -> str:
        """In parentheses where possible; commands stay bare only inside them."""
        sign = _BINARY_SIGNS[node.op]
        if node.op not in LOGICAL:
            lhs = self._operator_side(node.lhs, indent)
            return self._place.group(node, f"{lhs} {sign} {self._operator_side(node.rhs, indent)}")
        lhs = self._logical_operand(node.lhs, indent)
        rhs = self._logical_operand(node.rhs, indent)
        text = f"{lhs} {sign} {rhs}"
        grouped = self._place.group(node, text)
        if (
            grouped == text
            and isinstance(node.rhs, ast.Cmd)
            and node.rhs.call.head not in REPL_ONLY
        ):
            return f"{lhs} {sign} ({rhs})"
        return grouped

    def _logical_operand(self, expr: Expr, indent: str) -> str:
        if isinstance(expr, ast.Cmd):
            return self._command(expr.call, indent)
        return self._operator_side(expr, indent)

    def _operator_side(self, expr: Expr, indent: str) -> str:
        """Beside a binary operator, none of which binds tighter than a prefix."""
        if isinstance(expr, ast.Unary):
            return self._full(expr, indent)
        return self._operand(expr, indent)

    def _range(self, node: ast.RangeExpr, indent: str) -> str:
        sign = "..=" if node.inclusive else ".."
        return f"{self._operand(node.start, indent)}{sign}{self._operand(node.end, indent)}"

    def _catch(self, node: ast.Catch, indent: str) -> str:
        guarded = self._operand(node.expr, indent)
        # A command that no parentheses can hold is guarded from the next line.
        bare_command = isinstance(node.expr, ast.Cmd) and not guarded.startswith("(")
        gap = f"\n{indent}" if bare_command else " "
        binder = f"{node.binder} " if node.binder is not None else ""
        handler = node.handler
        if isinstance(handler, ast.BlockExpr):
            text = self._block(handler.block, indent)
        else:
            text = self._full(handler, indent)
            if text.startswith("{") or (not binder and (text[:1].isalpha() or text[:1] == "_")):
                text = f"({text})"
        return f"{guarded}{gap}catch {binder}{text}"

    def _lambda(self, node: ast.Lambda, indent: str) -> str:
        params = ", ".join(self._parameter(param, indent) for param in node.params)
        names = [param.name for param in node.params]
        return (
            f"({params}) => {self._place.with_names(names, lambda: self._body(node.body, indent))}"
        )

    def _body(self, expr: Expr, indent: str) -> str:
        """After `=>`, where braces are a block."""
        if isinstance(expr, ast.BlockExpr):
            return self._block(expr.block, indent)
        text = self._full(expr, indent)
        return f"({text})" if isinstance(expr, ast.RecordExpr) else text

    def _record(self, fields: list[ast.RecordField], indent: str) -> str:
        entries = (
            f"{record_key(field.name, self._holes)}: {self._full(field.value, indent)}"
            for field in fields
        )
        return f"{{{', '.join(entries)}}}"

    # --- atoms -----------------------------------------------------------------------------------

    def _atom(self, expr: Expr, indent: str) -> str:
        match expr:
            case ast.Var(name=name):
                return name
            case ast.Null():
                return "null"
            case ast.Bool(value=flag):
                return "true" if flag else "false"
            case ast.Int(value=number):
                return str(number)
            case ast.Float(value=real):
                return float_text(real)
            case ast.Str(value=text):
                return f'"{string_text(text, self._holes)}"'
            case ast.StrInterp(parts=parts):
                return self._interpolation(parts, indent)
            case ast.Size(bytes=amount):
                return f"{amount}b"
            case ast.Duration(ns=amount):
                return f"{amount}ns"
            case ast.Time():
                return time_text(expr)
            case ast.DateTime(iso=raw):
                return f't"{raw}"'
            case ast.Regex(src=raw):
                return f're"{raw}"'
            case ast.ListExpr(items=items):
                return f"[{', '.join(self._full(item, indent) for item in items)}]"
            case ast.FieldExpr(recv=recv, name=name, optional=optional):
                return f"{self._operand(recv, indent)}{'?.' if optional else '.'}{name}"
            case ast.Index(recv=recv, index=index):
                return f"{self._operand(recv, indent)}[{self._full(index, indent)}]"
            case ast.MethodCall(recv=recv, name=name, args=args, optional=optional):
                dot = "?." if optional else "."
                called = f"{self._operand(recv, indent)}{dot}{name}"
                return f"{called}{self._arguments(args, indent, feed=name == 'feed')}"
            case ast.FnCall(name=name, args=args):
                return f"{name}{self._arguments(args, indent)}"
            case ast.LangBlock(tool=tool, src=payload):
                return _interpreter_block(tool, payload)
        return self._full(expr, indent)

    def _arguments(self, args: ast.Args, indent: str, *, feed: bool = False) -> str:
        if feed and len(args.pos) == 1 and not args.named and isinstance(args.pos[0], ast.Cmd):
            command = self._command(args.pos[0].call, indent)
            return f"({command})" if self._place.reads_as_command(command) else f"(({command}))"
        texts = [self._full(value, indent) for value in args.pos]
        texts += [f"{arg.name}: {self._full(arg.value, indent)}" for arg in args.named]
        text = ", ".join(texts)
        if feed and self._place.reads_as_command(text):
            # After a newline this is a list of arguments, not a command.
            return f"(\n{indent}{INDENT}{text})"
        return f"({text})"

    def _interpolation(self, parts: list[ast.StrPart], indent: str) -> str:
        # Only the layout rules of a triple string leave empty text behind: a line end before each
        # hole and the closing quotes is dropped again, and so is one after the opening quotes.
        layout = any(isinstance(part, ast.LitPart) and not part.text for part in parts)
        pieces: list[str] = []
        for index, part in enumerate(parts):
            if isinstance(part, ast.ExprPart):
                pieces.append(f"{{{self._hole(part.expr, indent)}}}")
                continue
            text = string_text(part.text, self._holes)
            if layout:
                text = text + LINE_END if index else LINE_END + text + LINE_END
            pieces.append(text)
        quotes = '"""' if layout else '"'
        return f"{quotes}{''.join(pieces)}{quotes}"

    def _hole(self, expr: Expr, indent: str) -> str:
        self._holes += 1
        text = self._place.with_names([], lambda: self._expression_statement(expr, indent))
        self._holes -= 1
        return text

    # --- control ---------------------------------------------------------------------------------

    def _if(self, node: ast.If, indent: str) -> str:
        texts: list[str] = []
        current: Expr | None = node
        while isinstance(current, ast.If):
            header = self._header(current.cond, indent)
            texts.append(f"if {header} {self._block(current.then, indent)}")
            current = current.else_
        if isinstance(current, ast.BlockExpr):
            texts.append(self._block(current.block, indent))
        return " else ".join(texts)

    def _match(self, node: ast.Match, indent: str) -> str:
        inner = indent + INDENT
        scrutinee = self._header(node.scrutinee, indent)
        arms: list[str] = []
        for arm in node.arms:
            text = self._place.with_patterns(arm.patterns, lambda arm=arm: self._arm(arm, inner))  # type: ignore[misc]
            if arms and _continues_previous(text):
                arms[-1] += ","
            arms.append(text)
        lines = "".join(f"{inner}{text}\n" for text in arms)
        return f"match {scrutinee} {{\n{lines}{indent}}}"

    def _arm(self, arm: ast.MatchArm, indent: str) -> str:
        patterns = " | ".join(self._pattern(pattern) for pattern in arm.patterns)
        guard = f" if {self._guard(arm.guard, indent)}" if arm.guard is not None else ""
        return f"{patterns}{guard} => {self._body(arm.body, indent)}"

    def _guard(self, expr: Expr, indent: str) -> str:
        """Before an arm's arrow, where a lambda would swallow the arm."""
        text = self._full(expr, indent)
        return self._place.group(expr, text) if isinstance(expr, (ast.Lambda, ast.Catch)) else text

    def _with(self, node: ast.With, indent: str) -> str:
        scope = (("cwd", node.cwd), ("env", node.env), ("reef", node.reef))
        values = ", ".join(
            f"{key}: {self._header(value, indent)}" for key, value in scope if value is not None
        )
        return f"with {values} {self._block(node.body, indent)}"

    # --- patterns --------------------------------------------------------------------------------

    def _pattern(self, pattern: Pattern) -> str:
        match pattern:
            case ast.WildcardPat():
                return "_"
            case ast.BindPat(name=name):
                return name
            case ast.LitPat(expr=expr):
                return self._full(expr, "")
            case ast.RangePat(start=start, end=end, inclusive=inclusive):
                return f"{self._full(start, '')}{'..=' if inclusive else '..'}{self._full(end, '')}"
            case ast.TypePat(ty=ty, name=bound):
                return f"{type_text(ty)} {bound if bound is not None else '_'}"
            case ast.RecordPat(fields=fields):
                return f"{{{', '.join(map(self._field_pattern, fields))}}}"
            case ast.ListPat(items=items, rest=rest):
                texts = [self._pattern(item) for item in items]
                if rest is not None:
                    texts.append(f"...{rest}")
                return f"[{', '.join(texts)}]"

    def _field_pattern(self, field: ast.FieldPat) -> str:
        if field.pattern is None:
            return field.name
        return f"{field.name}: {self._pattern(field.pattern)}"

    # --- commands --------------------------------------------------------------------------------

    def _command(self, call: ast.CmdCall, indent: str) -> str:
        head, args, redirects, tail = self._command_pieces(call, indent)
        return _command_line([*head, *args, *redirects, *tail])

    def _command_pieces(self, call: ast.CmdCall, indent: str) -> tuple[list[str], ...]:
        """Prefixes and head, arguments, redirects, what ends the command."""
        head = [f"{prefix.name}={word_text(prefix.value) or ''}" for prefix in call.env_prefix]
        head.append(f"^{call.head}" if call.forced else call.head)
        args = [self._argument(arg, indent) for arg in call.args]
        redirects = [
            f"{_REDIRECT_SIGNS[redirect.kind]} {self._argument(redirect.target, indent)}"
            for redirect in call.redirects
        ]
        tail = ["&"] if call.background else []
        if call.trailing is not None:
            tail.append(self._block(call.trailing, indent))
        return head, args, redirects, tail

    def _argument(self, arg: ast.CmdArg, indent: str) -> str:
        word = word_text(arg)
        if word is not None:
            return word
        match arg:
            case ast.FlagLong(value=value) if value is not None:
                return f"{flag_text(arg)}= {self._argument(value, indent)}"
            case ast.ExprArg(expr=ast.Cmd(call=call)):
                return f"({self._command(call, indent)})"
            case ast.ExprArg(expr=expr):
                text = self._full(expr, indent)
                return text if isinstance(expr, ast.Binary) and text[0] == "(" else f"({text})"
            case ast.StrArg(expr=expr):
                return self._full(expr, indent)
        raise TypeError(f"not a command argument: {debug_text(type(arg).__name__)}")


def _command_line(pieces: list[str]) -> str:
    text = " ".join(pieces)
    # `~` is a head only before a blank; a lone backslash before a line end would continue it.
    return f"{text} " if text == "~" or _LONE_BACKSLASH(text) else text


def _continues_previous(text: str) -> bool:
    """Would this line be read as part of an expression on the line before?"""
    return _CONTINUATION_WORD(text) is not None


def _interpreter_block(tool: str, payload: str) -> str:
    text = f"{tool} {{ {payload} }}" if payload else f"{tool} {{ }}"
    probe = Parser(text, False, frozenset())
    balanced = probe.matching_brace(len(tool) + 1, len(text)) == len(text) - 1
    if balanced and payload == payload.strip():
        return text
    raw = raw_payload(payload)
    return text if raw is None else f"{tool}{raw}"
