"""Operators: arithmetic, comparison, negation, and the assignments that compute (chapter 20 §3).

Ints, floats and strings are worked out in place when both operands have that exact type; everything
else goes to worker.values.operators (see worker.evaluate.operands). An operator on literals is
worked out when the program is compiled, unless it raises: then it raises when it runs.

Failure: the errors of the operators, with the span of the operation.
"""

from __future__ import annotations

from typing import Any, Final

from worker.errors import Raised, raised
from worker.evaluate.blocks import is_bare_command
from worker.evaluate.code import Thunk, span_of
from worker.evaluate.compiler import Compiled, Compiler, Position, compiles
from worker.evaluate.names import cell_for_assignment, not_assignable
from worker.evaluate.operands import Operand, blaming, classify, fold, operation
from worker.evaluate.static import Frame, StaticScope, Variable, lost_value
from worker.evaluate.templates import specialise
from worker.language import ast
from worker.values.operators import FUNCTIONS, negate
from worker.values.types import MISSING, Span, Value


@compiles(ast.Binary)
def compile_binary(
    compiler: Compiler, node: ast.Binary, scope: StaticScope, position: Position
) -> Thunk:
    if node.op == "and" or node.op == "or":
        return compile_logic(compiler, node, scope, position)
    if node.op == "coalesce":
        return compile_coalesce(compiler, node, scope)
    operand = classify(compiler, node, scope)
    if operand.kind == "constant":
        folded = operand.where
        return lambda frame: folded
    values: dict[str, Any] = {}
    return specialise(operand.lines("r", values) + "return r\n", values)


@compiles(ast.Unary)
def compile_unary(
    compiler: Compiler, node: ast.Unary, scope: StaticScope, position: Position
) -> Thunk:
    span = span_of(node)
    folded = fold(node)
    if folded is not MISSING:
        return lambda frame: folded
    operand = compiler.value(node.expr, scope)
    if node.op == "not":
        blame = span_of(node.expr)

        def invert(frame: Frame) -> Value:
            value = operand(frame)
            if value is True:
                return False
            if value is False:
                return True
            return not condition(frame, value, blame)

        return invert

    def minus(frame: Frame) -> Value:
        value = operand(frame)
        try:
            return negate(value)
        except Raised as error:
            error.at(span)
            raise

    return minus


def condition(frame: Frame, value: Value, span: Span) -> bool:
    """The truth of a condition's value; the error blames the condition."""
    try:
        result: bool = frame[0].condition(value)
        return result
    except Raised as error:
        error.at(span)
        raise


def compile_coalesce(compiler: Compiler, node: ast.Binary, scope: StaticScope) -> Thunk:
    lhs = compiler.value(node.lhs, scope)
    rhs = compiler.value(node.rhs, scope)

    def coalesce(frame: Frame) -> Value:
        value = lhs(frame)
        return rhs(frame) if value is None else value

    return coalesce


def compile_logic(
    compiler: Compiler, node: ast.Binary, scope: StaticScope, position: Position
) -> Thunk:
    """`&&` and `||`: the deciding operand unchanged. As a statement, a command operand that was run
    and is not the result is shown (chapter 30 §16.4)."""
    statement = position != "value"
    inner: Position = "stmt" if statement else "value"
    lhs, rhs = (
        compile_logic(compiler, side, scope, inner)
        if type(side) is ast.Binary and side.op in ("and", "or")
        else compiler.value(side, scope)
        for side in (node.lhs, node.rhs)
    )
    blame = span_of(node.lhs)
    shown = statement and is_bare_command(node.lhs)
    stops_at = node.op == "or"

    def logic(frame: Frame) -> Value:
        value = lhs(frame)
        if value is True or value is False:
            truth = value
        else:
            truth = condition(frame, value, blame)
        if truth is stops_at:
            return value
        if shown:
            frame[0].sink(value)
        return rhs(frame)

    return logic


# -- assignment ----------------------------------------------------------------------------------


def compile_assignment(compiler: Compiler, node: ast.Assign, scope: StaticScope) -> Compiled:
    """`x = e` and `x op= e` for a plain variable; the value is the assigned one."""
    assert type(node.target) is ast.Var
    candidates, certain = scope.resolve(node.target.name)
    first = candidates[0]
    if type(first) is Variable and certain and not first.boxed:
        if first.mutable:
            return _assign(compiler, node, scope, Operand("slot", first.index))
        return Compiled(_refuse(compiler, node, scope), False)
    if type(first) is Variable and certain:
        kind = "boxed" if first.function is scope.function else "captured"
        index = first.index if kind == "boxed" else scope.function.captures[first]
        return _assign(compiler, node, scope, Operand(kind, index))
    if len(candidates) == 1:
        return _assign(compiler, node, scope, Operand("root", first))
    return Compiled(_assign_by_search(compiler, node, scope), False)


_CELLS: Final = {
    "boxed": "{x}c = frame[{x}c_at]\n",
    "captured": "{x}c = frame[1][{x}c_at]\n",
    "root": "{x}c = {x}c_at\n",
}


def _assign(compiler: Compiler, node: ast.Assign, scope: StaticScope, target: Operand) -> Compiled:
    assert type(node.target) is ast.Var
    operand = classify(compiler, node.value, scope)
    compound = node.op != "set"
    refuse = _refusal(node.target.name, span_of(node), compound=compound)
    slow = blaming(FUNCTIONS[node.op], span_of(node)) if compound else None

    def lines(x: str, values: dict[str, Any]) -> str:
        values[f"{x}c_at"] = target.where
        if target.kind == "slot":
            read, guard, store = "{x}o = frame[{x}c_at]\n", "", "frame[{x}c_at] = {x}\n"
        else:
            values[f"{x}_refuse"] = refuse
            read = _CELLS[target.kind] + "{x}o = {x}c.v\n"
            guard = "if not {x}c.mutable or {x}o is MISSING:\n    {x}_refuse({x}c)\n"
            store = "{x}c.v = {x}\n"
        read, guard, store = (text.format(x=x) for text in (read, guard, store))
        if slow is None:
            value = operand.lines(x, values)
            if operand.kind == "constant":
                # A constant is a name of its own in the template, which must not be assigned.
                values[f"{x}_constant"] = values.pop(x)
                value = f"{x} = {x}_constant\n"
            return value + ("" if target.kind == "slot" else read + guard) + store
        value = operand.lines(f"{x}n", values)
        computed = operation(node.op, slow, x, (f"{x}o", target), (f"{x}n", operand), values)
        return value + read + guard + computed + store

    values: dict[str, Any] = {}
    return Compiled(specialise(lines("r", values) + "return r\n", values), False, lines)


def _refusal(name: str, span: Span, *, compound: bool) -> Any:
    """Raise the error of an assignment to a cell that does not take it."""

    def refuse(cell: Any) -> None:
        if cell is not None and cell.v is MISSING and cell.lost and compound:
            raise lost_value(name).at(span)
        if cell is None or (cell.v is MISSING and not cell.lost):
            if compound:
                raise raised("undefined_var", f"undefined variable `{name}`", span=span)
            raise not_assignable(name, "no such variable").at(span)
        if not cell.mutable:
            raise not_assignable(name, "it is not a `var`").at(span)

    return refuse


def _refuse(compiler: Compiler, node: ast.Assign, scope: StaticScope) -> Thunk:
    assert type(node.target) is ast.Var
    value = compiler.value(node.value, scope)
    error_name, span = node.target.name, span_of(node)

    def refuse(frame: Frame) -> Value:
        value(frame)
        raise not_assignable(error_name, "it is not a `var`").at(span)

    return refuse


def _assign_by_search(compiler: Compiler, node: ast.Assign, scope: StaticScope) -> Thunk:
    """The general case: the variable is only known when the assignment runs."""
    assert type(node.target) is ast.Var
    name, span = node.target.name, span_of(node)
    find = cell_for_assignment(name, scope)
    value = compiler.value(node.value, scope)
    compound = node.op != "set"
    refuse = _refusal(name, span, compound=compound)
    operate = FUNCTIONS[node.op] if compound else None

    def assign(frame: Frame) -> Value:
        result = value(frame)
        cell = find(frame)
        if cell is None or not cell.mutable or (cell.v is MISSING and cell.lost and compound):
            refuse(cell)
        assert cell is not None
        if operate is not None:
            try:
                result = operate(cell.v, result)
            except Raised as error:
                error.at(span)
                raise
        cell.assign(result)
        cell.lost = False
        return result

    return assign
