"""Expressions written into a template: constants, variables, and operators and fields of those.

`classify` decides how the value of an expression is best fetched; `Operand.lines` gives the
template lines that put it into a Python name. Operators nest a few levels deep; anything else is a
thunk of its own, called where its value is needed.

The same lines serve two kinds of function: thunks, which find variables in their frame, and direct
functions, which have the parameters of a small lambda as their own (see worker.evaluate.direct).

Failure: fetching an unbound root name runs its reader, which raises what reading it raises; an
operator raises its error with the span of the operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from worker.errors import Raised
from worker.evaluate.code import span_of
from worker.evaluate.scopes import Cell
from worker.evaluate.static import FIRST_FREE_SLOT, StaticScope, Variable
from worker.language import ast
from worker.values.operators import FUNCTIONS, negate
from worker.values.types import INT_MAX, INT_MIN, MISSING, Duration, Size, Span, TimeOfDay, Value

if TYPE_CHECKING:
    from worker.evaluate.compiler import Compiler

# Operators inside operators that go into one template; deeper ones are thunks. More would make
# every expression a shape of its own.
NESTED_OPERATORS_MAX: Final = 2

_CONSTANTS: Final[dict[type, Any]] = {
    ast.Null: lambda node: None,
    ast.Bool: lambda node: node.value,
    ast.Int: lambda node: node.value,
    ast.Float: lambda node: node.value,
    ast.Str: lambda node: node.value,
    ast.Size: lambda node: Size(node.bytes),
    ast.Duration: lambda node: Duration(node.ns),
    ast.Time: lambda node: TimeOfDay(node.hour, node.min, node.sec),
}


def is_constant(node: ast.Expr) -> bool:
    return type(node) in _CONSTANTS


def constant_value(node: ast.Expr) -> Value:
    """The value of a literal that can be made before the program runs."""
    return _CONSTANTS[type(node)](node)


class Naming(NamedTuple):
    """How the lines of one function reach what they need: the evaluator, a slot, a captured cell,
    and what to do when a root name turns out to be unbound."""

    evaluator: str
    slot: Callable[[int, str], str]
    captured: str
    unbound: str


IN_FRAME: Final = Naming(
    evaluator="frame[0]",
    slot=lambda index, at: f"frame[{at}]",
    captured="frame[1]",
    unbound="{target} = {target}_reader(frame)",
)
# Starting over in the ordinary way is right: nothing that can be noticed has happened yet.
DIRECT: Final = Naming(
    evaluator="ev",
    slot=lambda index, at: f"arg{index - FIRST_FREE_SLOT}",
    captured="captured",
    unbound="return general()",
)


class Operand(NamedTuple):
    """`kind` is one of constant, slot, boxed, captured, root, thunk, operator, field; `where` is
    the value, slot, cell or thunk; `parts` are the operands of an operator or field."""

    kind: str
    where: Any
    reader: Any = None
    parts: tuple[Operand, ...] = ()

    @property
    def direct(self) -> bool:
        """Whether a function without a frame can compute it."""
        if self.kind in ("thunk", "boxed"):
            return False
        return all(part.direct for part in self.parts)

    @property
    def plain(self) -> bool:
        """Whether fetching it runs nothing and can be noticed by nothing."""
        return self.kind not in ("thunk", "operator", "field")

    def plain_lines(self, target: str, values: dict[str, Any], naming: Naming) -> str:
        """Lines that fetch a plain operand; `target` is MISSING for an unbound root name."""
        if self.kind != "root":
            return self.lines(target, values, naming)
        values[f"{target}_at"] = self.where
        return f"{target} = {target}_at.v\n"

    def unbound_lines(self, target: str, values: dict[str, Any], naming: Naming) -> str:
        """Lines that read an unbound root name in its own way, after `plain_lines`."""
        if self.kind != "root":
            return ""
        values[f"{target}_reader"] = self.reader
        return f"if {target} is MISSING:\n    {naming.unbound.format(target=target)}\n"

    def lines(self, target: str, values: dict[str, Any], naming: Naming = IN_FRAME) -> str:
        """Template lines that assign the operand to `target`; adds what they use to `values`."""
        return _LINES[self.kind](self, target, values, naming)


def _constant(operand: Operand, target: str, values: dict[str, Any], naming: Naming) -> str:
    values[target] = operand.where
    return ""


def _variable(operand: Operand, target: str, values: dict[str, Any], naming: Naming) -> str:
    at = f"{target}_at"
    values[at] = operand.where
    if operand.kind == "slot":
        return f"{target} = {naming.slot(operand.where, at)}\n"
    if operand.kind == "boxed":
        return f"{target} = frame[{at}].v\n"
    return f"{target} = {naming.captured}[{at}].v\n"


def _root(operand: Operand, target: str, values: dict[str, Any], naming: Naming) -> str:
    lines = operand.plain_lines(target, values, naming)
    return lines + operand.unbound_lines(target, values, naming)


def _thunk(operand: Operand, target: str, values: dict[str, Any], naming: Naming) -> str:
    values[f"{target}_at"] = operand.where
    return f"{target} = {target}_at(frame)\n"


def _operator(operand: Operand, target: str, values: dict[str, Any], naming: Naming) -> str:
    lhs, rhs = f"{target}l", f"{target}r"
    left, right = operand.parts
    # Fetching a plain variable or constant cannot be noticed. So when both sides are plain, the
    # question whether a root name is bound at all is left to the slow path.
    if left.plain and right.plain:
        lines = left.plain_lines(lhs, values, naming) + right.plain_lines(rhs, values, naming)
        bound = left.unbound_lines(lhs, values, naming) + right.unbound_lines(rhs, values, naming)
    else:
        lines = left.lines(lhs, values, naming) + right.lines(rhs, values, naming)
        bound = ""
    return lines + operation(
        operand.where, operand.reader, target, (lhs, left), (rhs, right), values, bound
    )


def _field(operand: Operand, target: str, values: dict[str, Any], naming: Naming) -> str:
    recv = f"{target}v"
    values[f"{target}_name"] = operand.where
    values[f"{target}_slow"] = operand.reader
    return operand.parts[0].lines(recv, values, naming) + (
        f"{target} = {recv}.get({target}_name, MISSING) if type({recv}) is dict else MISSING\n"
        f"if {target} is MISSING:\n"
        f"    {target} = {target}_slow({naming.evaluator}, {recv})\n"
    )


_LINES: Final = {
    "constant": _constant,
    "slot": _variable,
    "boxed": _variable,
    "captured": _variable,
    "root": _root,
    "thunk": _thunk,
    "operator": _operator,
    "field": _field,
}

# -- operators -------------------------------------------------------------------------------------

# Sums and products of this size are checked with Python's fast comparison of short ints; only
# larger ones are compared with the limits of the language's int.
_SHORT: Final = 2**30 - 1
_IN_RANGE: Final = (
    f"    if not -{_SHORT} <= {{x}} <= {_SHORT} and not {INT_MIN} <= {{x}} <= {INT_MAX}:\n"
    "        {x} = {slow}({a}, {b})\n"
)

_SIGNS: Final = {
    "add": "+", "sub": "-", "mul": "*", "div": "//", "rem": "%",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip

# Exact types for which each operator is worked out in place, most used first.
_IN_PLACE: Final[dict[str, tuple[type, ...]]] = {
    "add": (int, float, str),
    "sub": (int, float),
    "mul": (int, float),
    "div": (int,),
    "rem": (int,),
    "lt": (int, str),
    "le": (int, str),
    "gt": (int, str),
    "ge": (int, str),
    "eq": (int, str),
    "ne": (int, str),
}

Side = tuple[str, Operand]


def operation(
    op: str,
    slow: Any,
    target: str,
    lhs: Side,
    rhs: Side,
    values: dict[str, Any],
    before_slow: str = "",
) -> str:
    """Template lines of one operator: in place for the exact types it is mostly used with.

    The type of a constant is known; `before_slow` runs before everything else is tried.
    """
    name = f"{target}_slow"
    values[name] = slow
    (a, left), (b, right) = lhs, rhs
    known = {type(side.where) for side in (left, right) if side.kind == "constant"}
    text = ""
    if op in ("eq", "ne") and not known:
        text = f"if type({a}) is type({b}) and (type({a}) is int or type({a}) is str):\n"
        text += f"    {target} = {a} {_SIGNS[op]} {b}\n"
    else:
        for kind in _IN_PLACE.get(op, ()):
            if known <= {kind}:
                text += "elif" if text else "if"
                text += _in_place(op, kind, left, right)
    slow_lines = before_slow + f"{target} = {name}({a}, {b})\n"
    if text:
        text += "else:\n"
        slow_lines = "".join(f"    {line}\n" for line in slow_lines.splitlines())
    return text.format(x=target, a=a, b=b, slow=name) + slow_lines


def _in_place(op: str, kind: type, left: Operand, right: Operand) -> str:
    tests = [
        f"type({{{side}}}) is {kind.__name__}"
        for side, operand in (("a", left), ("b", right))
        if operand.kind != "constant"
    ]
    if op in ("div", "rem"):
        # Division rounds toward zero, which is what Python does for operands of one sign.
        tests.append("{a} >= 0 and {b} > 0")
    lines = f" {' and '.join(tests) or 'True'}:\n    {{x}} = {{a}} {_SIGNS[op]} {{b}}\n"
    return lines + _IN_RANGE if kind is int and op in ("add", "sub", "mul") else lines


def blaming(function: Callable[..., Value], span: Span) -> Callable[..., Value]:
    """The function with the span set on errors that have none."""

    def call(*args: Value) -> Value:
        try:
            return function(*args)
        except Raised as error:
            error.at(span)
            raise

    return call


# -- classification --------------------------------------------------------------------------------


def classify(compiler: Compiler, node: Any, scope: StaticScope, nested: int = 0) -> Operand:
    """The cheapest way to fetch an expression's value in a scope."""
    if type(node) in _CONSTANTS:
        return Operand("constant", constant_value(node))
    if type(node) is ast.Var:
        candidates, certain = scope.resolve(node.name)
        first = candidates[0]
        if type(first) is Variable and certain:
            if first.function is not scope.function:
                return Operand("captured", scope.function.captures[first])
            return Operand("boxed" if first.boxed else "slot", first.index)
        if type(first) is Cell:
            return Operand("root", first, compiler.value(node, scope))
    elif nested <= NESTED_OPERATORS_MAX:
        if type(node) is ast.Binary and node.op in FUNCTIONS:
            folded = fold(node)
            if folded is not MISSING:
                return Operand("constant", folded)
            lhs = classify(compiler, node.lhs, scope, nested + 1)
            rhs = classify(compiler, node.rhs, scope, nested + 1)
            slow = blaming(FUNCTIONS[node.op], span_of(node))
            return Operand("operator", node.op, slow, (lhs, rhs))
        if type(node) is ast.FieldExpr and is_plain_field(node):
            recv = classify(compiler, node.recv, scope, nested + 1)
            return Operand("field", node.name, field_reader(node.name, span_of(node)), (recv,))
        if type(node) is ast.Unary and node.op == "neg":
            folded = fold(node)
            if folded is not MISSING:
                return Operand("constant", folded)
    return Operand("thunk", compiler.value(node, scope))


def may_be_direct(node: Any, nested: int = 0) -> bool:
    """Whether `classify` can come out direct, from the syntax alone: no thunk is needed anywhere.

    Asked first where an expression is compiled in the ordinary way as well, so that what stands
    inside it (other lambdas above all) is compiled once.
    """
    if type(node) in _CONSTANTS or type(node) is ast.Var:
        return True
    if nested > NESTED_OPERATORS_MAX:
        return False
    if type(node) is ast.Binary and node.op in FUNCTIONS:
        return may_be_direct(node.lhs, nested + 1) and may_be_direct(node.rhs, nested + 1)
    if type(node) is ast.FieldExpr and is_plain_field(node):
        return may_be_direct(node.recv, nested + 1)
    return type(node) is ast.Unary and node.op == "neg" and fold(node) is not MISSING


# Names that are namespaces while unbound (chapter 31 §10): their members are no fields.
NAMESPACE_NAMES: Final = frozenset(("json", "yaml", "toml", "csv", "math", "http", "os", "config"))


# The name whose fields are single variables, read one by one while it is unbound.
ENVIRONMENT: Final = "env"


def is_plain_field(node: ast.FieldExpr) -> bool:
    """Whether a field access is neither optional nor possibly a namespace member."""
    named = type(node.recv) is ast.Var and (
        node.recv.name in NAMESPACE_NAMES or node.recv.name == ENVIRONMENT
    )
    return not node.optional and not named


def field_reader(name: str, span: Span) -> Callable[[Any, Value], Value]:
    """Read a field that is not simply a record's own."""
    from worker.evaluate.expressions import field_value

    def read(ev: Any, value: Value) -> Value:
        try:
            return field_value(ev, value, name)
        except Raised as error:
            error.at(span)
            raise

    return read


# Results of these types may be worked out beforehand.
_FOLDED: Final = (int, float, str, bool)


def fold(node: Any) -> Value:
    """The value of an operator on literals, MISSING when it is not known or raises."""
    kind = type(node)
    if kind is ast.Int or kind is ast.Float or kind is ast.Str or kind is ast.Bool:
        return node.value
    if kind is ast.Unary and node.op == "neg":
        operand = fold(node.expr)
        try:
            return MISSING if operand is MISSING else negate(operand)
        except Raised:
            return MISSING
    if kind is ast.Binary and node.op in FUNCTIONS:
        lhs = fold(node.lhs)
        rhs = MISSING if lhs is MISSING else fold(node.rhs)
        if rhs is MISSING:
            return MISSING
        try:
            result = FUNCTIONS[node.op](lhs, rhs)
        except Raised:
            return MISSING
        return result if type(result) in _FOLDED else MISSING
    return MISSING
