"""The syntax tree of the shell language: one struct per node, AST vocabulary version 2.

The structs are the schema. `msgspec.json.encode(program)` gives exactly the AST JSON of chapter 10
§13: sum types carry their name in `kind`, records carry no tag, every field is always written.
`decode_ast` reads the same JSON back from a client.

Fields that may be null come last and default to None, so that a client may leave them out; all
other fields are required. Nodes are plain data and hold no cycles (`gc=False`). Spans are half-open
UTF-8 byte ranges in the source, or in the text of the string hole the node stands in.

Failure: building nodes checks nothing but the ranges that JSON cannot express. `decode_ast` raises
InvalidAst, whose text starts with `invalid ast:`, for anything that is not a complete tree.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

AST_VERSION = 2

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
SIZE_BYTES_MAX = 2**64 - 1
OFFSET_MAX = 2**32 - 1

Offset = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]
Int64 = Annotated[int, Meta(ge=INT_MIN, le=INT_MAX)]

AssignOp = Literal["set", "add", "sub", "mul", "div"]
UnaryOp = Literal["not", "neg"]
BinaryOp = Literal[
    "add", "sub", "mul", "div", "rem",
    "eq", "ne", "lt", "le", "gt", "ge", "in",
    "and", "or", "coalesce",
]  # fmt: skip
RedirectKind = Literal["out", "append", "in"]

# Names only the parser makes up (chapter 10 §13.8).
ITEM_NAME = "__item"
IIFE_NAME = "__iife"


class InvalidAst(Exception):
    """A client's JSON is not a syntax tree; the text starts with `invalid ast:`."""


class Record(Struct, gc=False):
    """A part of a node that has one shape only and therefore no tag."""


class Node(Struct, gc=False, tag_field="kind"):
    """A member of a sum type; subclasses name themselves with `tag=`."""


class Span(Record):
    start: Offset
    end: Offset


# --- records -------------------------------------------------------------------------------------


class Program(Record):
    stmts: list[Stmt]


class Block(Record):
    stmts: list[Stmt]
    span: Span


class TypeRef(Record):
    name: str
    args: list[TypeRef]
    optional: bool
    span: Span


class Param(Record):
    name: str
    span: Span
    ty: TypeRef | None = None
    default: Expr | None = None


class RestParam(Record):
    name: str
    ty: TypeRef | None = None


class FnDecl(Record):
    name: str
    params: list[Param]
    body: Block
    exported: bool
    span: Span
    rest: RestParam | None = None
    ret: TypeRef | None = None
    doc: None = None


class RecordField(Record):
    name: str
    value: Expr
    span: Span


class NamedArg(Record):
    name: str
    value: Expr
    span: Span


class Args(Record):
    pos: list[Expr]
    named: list[NamedArg]


class MatchArm(Record):
    patterns: Annotated[list[Pattern], Meta(min_length=1)]
    body: Expr
    span: Span
    guard: Expr | None = None


class FieldPat(Record):
    name: str
    pattern: Pattern | None = None


class EnvPrefix(Record):
    name: str
    value: CmdArg
    span: Span


class Redirect(Record):
    kind: RedirectKind
    target: CmdArg
    span: Span


class CmdCall(Record):
    head: str
    forced: bool
    args: list[CmdArg]
    redirects: list[Redirect]
    env_prefix: list[EnvPrefix]
    background: bool
    span: Span
    trailing: Block | None = None


# --- statements ----------------------------------------------------------------------------------


class Let(Node, tag="let"):
    pattern: Pattern
    init: Expr
    mutable: bool
    exported: bool
    span: Span
    ty: TypeRef | None = None


class Fn(Node, tag="fn"):
    decl: FnDecl


class Alias(Node, tag="alias"):
    name: str
    target: CmdCall
    span: Span


class Use(Node, tag="use"):
    path: str
    span: Span


class Assign(Node, tag="assign"):
    target: Expr
    op: AssignOp
    value: Expr
    span: Span


class Return(Node, tag="return"):
    span: Span
    value: Expr | None = None


class Break(Node, tag="break"):
    span: Span


class Continue(Node, tag="continue"):
    span: Span


class For(Node, tag="for"):
    pattern: Pattern
    iter: Expr
    body: Block
    span: Span


class While(Node, tag="while"):
    cond: Expr
    body: Block
    span: Span


class ExprStmt(Node, tag="expr"):
    expr: Expr
    span: Span


# --- literals, names, collections ----------------------------------------------------------------


class Null(Node, tag="null"):
    span: Span


class Bool(Node, tag="bool"):
    value: bool
    span: Span


class Int(Node, tag="int"):
    value: Int64
    span: Span


class Float(Node, tag="float"):
    value: float
    span: Span


class Str(Node, tag="str"):
    value: str
    span: Span


class LitPart(Node, tag="lit"):
    text: str


class ExprPart(Node, tag="expr"):
    expr: Expr


class StrInterp(Node, tag="str_interp"):
    parts: list[StrPart]
    span: Span


class Size(Node, tag="size"):
    bytes: Annotated[int, Meta(ge=0)]
    span: Span

    def __post_init__(self) -> None:
        # msgspec's own bounds stop at 2^63 - 1.
        if self.bytes > SIZE_BYTES_MAX:
            raise ValueError("Expected `int` <= 18446744073709551615")


class Duration(Node, tag="duration"):
    ns: Int64
    span: Span


class Time(Node, tag="time"):
    hour: Annotated[int, Meta(ge=0, le=23)]
    min: Annotated[int, Meta(ge=0, le=59)]
    sec: Annotated[int, Meta(ge=0, le=59)]
    span: Span


class DateTime(Node, tag="date_time"):
    iso: str
    span: Span


class Regex(Node, tag="regex"):
    src: str
    span: Span


class Var(Node, tag="var"):
    name: str
    span: Span


class ListExpr(Node, tag="list"):
    items: list[Expr]
    span: Span


class RecordExpr(Node, tag="record"):
    fields: list[RecordField]
    span: Span


class BlockExpr(Node, tag="block"):
    block: Block
    span: Span


class RangeExpr(Node, tag="range"):
    start: Expr
    end: Expr
    inclusive: bool
    span: Span


# --- operators and access ------------------------------------------------------------------------


class Unary(Node, tag="unary"):
    op: UnaryOp
    expr: Expr
    span: Span


class Binary(Node, tag="binary"):
    op: BinaryOp
    lhs: Expr
    rhs: Expr
    span: Span


class FieldExpr(Node, tag="field"):
    recv: Expr
    name: str
    optional: bool
    span: Span


class Index(Node, tag="index"):
    recv: Expr
    index: Expr
    span: Span


class MethodCall(Node, tag="method_call"):
    recv: Expr
    name: str
    args: Args
    optional: bool
    span: Span


class FnCall(Node, tag="fn_call"):
    name: str
    args: Args
    span: Span


# --- functions, control, commands as expressions -------------------------------------------------


class Lambda(Node, tag="lambda"):
    params: list[Param]
    body: Expr
    span: Span


class If(Node, tag="if", rename={"else_": "else"}):
    cond: Expr
    then: Block
    span: Span
    else_: Expr | None = None


class Match(Node, tag="match"):
    scrutinee: Expr
    arms: list[MatchArm]
    span: Span


class Try(Node, tag="try"):
    body: Block
    handler: Block
    span: Span
    pattern: Pattern | None = None


class Catch(Node, tag="catch"):
    expr: Expr
    handler: Expr
    span: Span
    binder: str | None = None


class With(Node, tag="with"):
    body: Block
    span: Span
    cwd: Expr | None = None
    env: Expr | None = None
    reef: Expr | None = None


class Spawn(Node, tag="spawn"):
    body: Block
    span: Span


class LangBlock(Node, tag="lang_block"):
    tool: str
    src: str
    span: Span


class Cmd(Node, tag="cmd"):
    call: CmdCall
    span: Span


# --- patterns ------------------------------------------------------------------------------------


class WildcardPat(Node, tag="wildcard"):
    span: Span


class BindPat(Node, tag="bind"):
    name: str
    span: Span


class LitPat(Node, tag="lit"):
    expr: Expr
    span: Span


class RangePat(Node, tag="range"):
    start: Expr
    end: Expr
    inclusive: bool
    span: Span


class TypePat(Node, tag="type"):
    ty: TypeRef
    span: Span
    name: str | None = None


class RecordPat(Node, tag="record"):
    fields: list[FieldPat]
    span: Span


class ListPat(Node, tag="list"):
    items: list[Pattern]
    span: Span
    rest: str | None = None


# --- command arguments ---------------------------------------------------------------------------


class WordArg(Node, tag="word"):
    text: str
    span: Span


class PathArg(Node, tag="path"):
    text: str
    span: Span


class GlobArg(Node, tag="glob"):
    pattern: str
    span: Span


class StrArg(Node, tag="str"):
    expr: Expr
    span: Span


class ExprArg(Node, tag="expr"):
    expr: Expr
    span: Span


class FlagLong(Node, tag="flag_long"):
    name: str
    span: Span
    value: CmdArg | None = None


class FlagShort(Node, tag="flag_short"):
    chars: str
    span: Span


class DashDash(Node, tag="dash_dash"):
    span: Span


class Dash(Node, tag="dash"):
    span: Span


# --- sum types -----------------------------------------------------------------------------------

Stmt: TypeAlias = (
    Let | Fn | Alias | Use | Assign | Return | Break | Continue | For | While | ExprStmt
)  # fmt: skip
Expr: TypeAlias = (
    Null | Bool | Int | Float | Str | StrInterp | Size | Duration | Time | DateTime | Regex
    | Var | ListExpr | RecordExpr | BlockExpr | RangeExpr | Unary | Binary | FieldExpr | Index
    | MethodCall | FnCall | Lambda | If | Match | Try | Catch | With | Spawn | LangBlock | Cmd
)  # fmt: skip
StrPart: TypeAlias = LitPart | ExprPart
Pattern: TypeAlias = WildcardPat | BindPat | LitPat | RangePat | TypePat | RecordPat | ListPat
CmdArg: TypeAlias = (
    WordArg | PathArg | GlobArg | StrArg | ExprArg | FlagLong | FlagShort | DashDash | Dash
)  # fmt: skip

_DECODER: msgspec.json.Decoder[Program] = msgspec.json.Decoder(Program)


def decode_ast(raw: bytes | bytearray | memoryview | str) -> Program:
    """Read a client's AST JSON. Raises InvalidAst for anything but a complete tree."""
    try:
        return _DECODER.decode(raw)
    except RecursionError:
        raise InvalidAst("invalid ast: nesting too deep") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidAst(f"invalid ast: {error}") from None
