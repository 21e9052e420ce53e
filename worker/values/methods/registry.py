"""Every method of the language as data: who takes it, its arguments, its result, its effects.

A method is declared beside its body with `@method(...)`. Dispatch, the planner, completion, the
reference documentation and the tests walk the same registry, so none of them can disagree. One
name may be declared several times, once per family of receivers (`take` of a list, of a str, of a
stream); the pair (receiver type, name) is unique.

A body gets the evaluator, the receiver and its arguments after the readers of `arguments` have
checked them, in order, before the receiver's own checks. A `raw` body gets the positional list and
the named arguments unread.

Failure: declaring a pair twice, or an unknown receiver type, is a programming error and fails when
the module loads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from worker.errors import Raised, arg_error, type_error
from worker.values.types import TYPE_NAMES, Value

if TYPE_CHECKING:
    from worker.evaluate.evaluator import Evaluator
    from worker.values.methods.arguments import Parameter

Body = Callable[..., Value]
Named = dict[str, Value]

# Receiver sets of chapter 21. A channel handle is a record of one field, content-addressed bytes
# are a way to store bytes: both are named here because they have methods of their own.
COLLECTION: Final = ("list", "table", "range")
EVERY: Final = tuple(TYPE_NAMES)
CHANNEL: Final = "channel handle"
CONTENT: Final = "content-addressed bytes"

_RECEIVERS: Final = frozenset((*TYPE_NAMES, CHANNEL, CONTENT))


@dataclass(frozen=True, slots=True)
class MethodEffect:
    """One effect of a call: `kind` on `operand`; `unknown` is what it becomes when the operand
    cannot be known before the run (`dynamic`: the same kind with an unknown operand)."""

    kind: str
    operand: str
    unknown: str = "dynamic"


WRITES_TARGET: Final = (MethodEffect("fs_write", "argument 0"),)
READS_RECEIVER: Final = (MethodEffect("fs_read", "receiver", unknown="opaque"),)
PROBES_RECEIVER: Final = (MethodEffect("fs_read", "receiver", unknown="none"),)


@dataclass(frozen=True, slots=True)
class Method:
    """One method of one family of receivers.

    `refuses`: the message for any argument at all, None when surplus arguments are ignored.
    `lazy`: a stream method that does not collect. `doc` is one line.
    """

    name: str
    receivers: tuple[str, ...]
    params: tuple[Parameter, ...]
    result: str
    doc: str
    body: Body
    refuses: str | None
    raw: bool
    effects: tuple[MethodEffect, ...]

    def read(self, pos: list[Value], named: Named | None) -> tuple[Value, ...]:
        """The checked arguments. Raises arg_error or type_error; touches nothing else."""
        if self.refuses is not None and (pos or named):
            raise arg_error(self.refuses)
        if not self.params:
            return ()
        given = len(pos)
        return tuple(
            [
                param.reader(pos[index]) if index < given else param.absent(index)
                for index, param in enumerate(self.params)
            ]
        )

    def call(self, ev: Evaluator, recv: Value, pos: list[Value], named: Named | None) -> Value:
        if self.raw:
            return self.body(ev, recv, pos, named)
        if not self.params and self.refuses is None:
            return self.body(ev, recv)
        return self.body(ev, recv, *self.read(pos, named))


# All declarations in order, and the same ones by receiver type and name. Filled while the family
# modules load and never changed afterwards.
METHODS: Final[list[Method]] = []
BY_TYPE: Final[dict[str, dict[str, Method]]] = {name: {} for name in _RECEIVERS}


def method(
    *names: str,
    on: tuple[str, ...],
    params: tuple[Parameter, ...] = (),
    result: str,
    doc: str,
    refuses: str | None = None,
    raw: bool = False,
    effects: tuple[MethodEffect, ...] = (),
) -> Callable[[Body], Body]:
    """Declare one method under one or more names. `{name}` in `refuses` stands for the name."""

    def register(body: Body) -> Body:
        for name in names:
            entry = Method(
                name=name,
                receivers=on,
                params=params,
                result=result,
                doc=doc,
                body=body,
                refuses=None if refuses is None else refuses.format(name=name),
                raw=raw,
                effects=effects,
            )
            METHODS.append(entry)
            for receiver in on:
                table = BY_TYPE[receiver]
                if name in table:
                    raise ValueError(f"method {name} of {receiver} is declared twice")
                table[name] = entry
        return body

    return register


TAKES_NOTHING: Final = "method takes no arguments"
TAKES_NOTHING_NAMED: Final = ".{name} takes no arguments"
AGGREGATE_TAKES_NOTHING: Final = "{name} takes no arguments (did you mean .map(f).{name}()?)"


# What a method of the general table says to a receiver it does not know, by name: `{type}` is the
# receiver's type, `{name}` the method's. Names without an entry are unknown on other types.
_WRONG_RECEIVER_TEXTS: Final[tuple[tuple[str, str], ...]] = (
    (
        "first last map where filter each flat_map reduce fold any all find sort sort_by uniq sum "
        "min max flatten chunks group group_by reverse enumerate zip take skip join contains tee",
        "expected collection, found {type}",
    ),
    (
        "lines words chars trim upper lower split starts_with ends_with replace parse_int "
        "parse_float",
        "expected str, found {type}",
    ),
    ("matches match", "{name} expects str receiver and regex"),
    ("keys values items set merge", "expected record, found {type}"),
    ("abs round floor ceil", "expected number, found {type}"),
    ("len count is_empty", ".len unsupported on {type}"),
    (
        "await wait cancel is_done suspend resume is_suspended",
        ".{name} expects a task, found {type}",
    ),
    ("str display", "cannot convert {type} to str"),
    ("collect", "cannot collect {type}"),
    ("stream", "cannot make a stream from {type}"),
    ("get", "get expects record+str or list+int"),
)
WRONG_RECEIVER: Final[dict[str, str]] = {
    name: text for names, text in _WRONG_RECEIVER_TEXTS for name in names.split()
}

_TO_STR_HINT: Final = 'use string interpolation: "{value}"'


def wrong_receiver(name: str, type_name: str) -> Raised:
    """The error for a known method on a receiver that does not have it."""
    message = WRONG_RECEIVER[name].format(name=name, type=type_name)
    return type_error(message, hint=_TO_STR_HINT if name in ("str", "display") else None)


def reader_of(name: str) -> Method | None:
    """The declaration whose argument rules hold for a receiver that lacks the method.

    Argument checks come before the receiver check, also for a receiver of the wrong type; the rules
    are those of the family the method is named after, the first one declared.
    """
    return _FIRST_DECLARED.get(name)


_FIRST_DECLARED: Final[dict[str, Method]] = {}


def seal() -> None:
    """Called once after all families have loaded."""
    for entry in METHODS:
        if entry.name in WRONG_RECEIVER:
            _FIRST_DECLARED.setdefault(entry.name, entry)


def walk() -> list[dict[str, Any]]:
    """The registry as plain data, for documentation."""
    return [
        {
            "name": entry.name,
            "receivers": list(entry.receivers),
            "parameters": [param.signature() for param in entry.params],
            "result": entry.result,
            "doc": entry.doc,
            "effects": [[e.kind, e.operand, e.unknown] for e in entry.effects],
        }
        for entry in METHODS
    ]
