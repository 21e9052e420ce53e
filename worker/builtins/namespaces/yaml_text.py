"""YAML text to plain data and back, by the core schema of YAML 1.2 (chapter 31 §10.2).

PyYAML knows YAML 1.1, where `yes`, `on` and dates are no strings. So only its event parser is used
for reading: scalars are resolved here, and containers are built without recursion, so that depth is
limited by a rule instead of by the stack. Aliases share what they name; what they would amount to
when written out is counted, because a few lines of aliases can stand for billions of nodes.

Failure: `arg_error` `WHAT: ...` for malformed text, a second document, a tag or a key that is not
plain data, nesting deeper than JSON_DEPTH_MAX, an alias to its own container, too many nodes.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml
from yaml import events

from worker.errors import Raised, arg_error
from worker.values.json_codec import JSON_DEPTH_MAX

NODES_MAX: Final = 1_000_000

_Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NULL: Final = re.compile(r"(?:~|null|Null|NULL|)\Z")
_TRUE: Final = frozenset(("true", "True", "TRUE"))
_FALSE: Final = frozenset(("false", "False", "FALSE"))
_INT: Final = re.compile(r"[-+]?[0-9]+\Z")
_RADIX: Final = re.compile(r"([-+]?)0([xob])([0-9a-fA-F]+)\Z")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_INFINITY: Final = re.compile(r"([-+]?)\.(?:inf|Inf|INF)\Z")
_NAN: Final = frozenset((".nan", ".NaN", ".NAN"))
_BASES: Final = {"x": 16, "o": 8, "b": 2}
_INT_DIGITS_MAX: Final = 400

_LINE_BREAKS: Final = frozenset("\r\x85\u2028\u2029\ufeff")

_TAG: Final = "tag:yaml.org,2002:"
_PLAIN_CONTAINERS: Final = (None, "!", _TAG + "map", _TAG + "seq")


def resolve(text: str) -> Any:
    """The core schema's reading of a plain scalar."""
    if _NULL.match(text):
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INT.match(text):
        return _integer(text, 10)
    radix = _RADIX.match(text)
    if radix:
        try:
            return _integer(radix[1] + radix[3], _BASES[radix[2]])
        except ValueError:
            return text
    if _FLOAT.match(text):
        return float(text)
    infinity = _INFINITY.match(text)
    if infinity:
        return float(infinity[1] + "inf")
    return float("nan") if text in _NAN else text


def _integer(digits: str, base: int) -> int | float:
    # Far beyond 64 bits: the value becomes a float anyway, and int() limits its own input.
    if len(digits) > _INT_DIGITS_MAX:
        return float(digits) if base == 10 else float("inf")
    number = int(digits, base)
    return -0.0 if number == 0 and digits.startswith("-") else number


def _tagged(tag: str, text: str, what: str) -> Any:
    """A scalar with an explicit tag of the core schema."""
    kind = tag.removeprefix(_TAG)
    if tag == "!" or kind == "str":
        return text
    found = resolve(text)
    wanted: dict[str, tuple[type, ...]] = {
        "null": (type(None),),
        "bool": (bool,),
        "int": (int,),
        "float": (float, int),
    }
    if type(found) not in wanted.get(kind, ()):
        raise arg_error(f"{what}: cannot read {text!r} as {tag}")
    return float(found) if kind == "float" else found


class _Open:
    """A container that is being filled; `key` is the text of a mapping's pending key."""

    __slots__ = ("anchor", "items", "key", "nodes")

    def __init__(self, items: list[Any] | dict[str, Any], anchor: str | None) -> None:
        self.items = items
        self.anchor = anchor
        self.key: str | None = None
        self.nodes = 1


class _Builder:
    def __init__(self, what: str) -> None:
        self._what = what
        self._open: list[_Open] = []
        # Finished anchors: the value, and how many nodes it stands for.
        self._anchors: dict[str, tuple[Any, int]] = {}
        self.documents = 0
        self.result: Any = None

    def fail(self, reason: str) -> Raised:
        return arg_error(f"{self._what}: {reason}")

    def event(self, event: Any) -> None:
        kind = type(event)
        if kind is events.ScalarEvent:
            self._scalar(event)
        elif kind is events.AliasEvent:
            if event.anchor not in self._anchors:
                raise self.fail(f"alias *{event.anchor} names nothing finished")
            self._add(*self._anchors[event.anchor])
        elif kind is events.SequenceStartEvent or kind is events.MappingStartEvent:
            self._start(event, [] if kind is events.SequenceStartEvent else {})
        elif kind is events.SequenceEndEvent or kind is events.MappingEndEvent:
            self._end()
        elif kind is events.DocumentStartEvent:
            self.documents += 1
            if self.documents > 1:
                raise self.fail("more than one document")

    def _scalar(self, event: Any) -> None:
        text = event.value
        if self._awaits_key():
            value = text
        elif event.tag is not None:
            value = _tagged(event.tag, text, self._what)
        else:
            value = resolve(text) if event.implicit[0] else text
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, 1)
        self._add(value, 1)

    def _awaits_key(self) -> bool:
        return (
            bool(self._open) and self._open[-1].key is None and type(self._open[-1].items) is dict
        )

    def _start(self, event: Any, items: list[Any] | dict[str, Any]) -> None:
        if self._awaits_key():
            raise self.fail("a key must be a scalar")
        if event.tag not in _PLAIN_CONTAINERS:
            raise self.fail(f"unknown tag {event.tag}")
        if len(self._open) >= JSON_DEPTH_MAX:
            raise self.fail(f"nesting deeper than {JSON_DEPTH_MAX} levels")
        if event.anchor is not None:
            # An alias inside the container would name the container itself.
            self._anchors.pop(event.anchor, None)
        self._open.append(_Open(items, event.anchor))

    def _end(self) -> None:
        done = self._open.pop()
        if done.anchor is not None:
            self._anchors[done.anchor] = (done.items, done.nodes)
        self._add(done.items, done.nodes)

    def _add(self, value: Any, nodes: int) -> None:
        if not self._open:
            self.result = value
            return
        inside = self._open[-1]
        if type(inside.items) is dict:
            if inside.key is None:
                if type(value) is not str:
                    raise self.fail("a key must be a scalar")
                inside.key = value
                return
            inside.items[inside.key] = value
            inside.key = None
        else:
            inside.items.append(value)  # type: ignore[union-attr]
        inside.nodes += nodes
        if inside.nodes > NODES_MAX:
            raise self.fail(f"more than {NODES_MAX} nodes")


def parse(text: str, what: str) -> Any:
    """The plain data of one document; an empty text is null."""
    builder = _Builder(what)
    try:
        for event in yaml.parse(text, Loader=_Loader):
            builder.event(event)
    except yaml.YAMLError as error:
        raise arg_error(f"{what}: {' '.join(str(error).split())}") from None
    except UnicodeEncodeError:
        raise arg_error(f"{what}: text is not valid Unicode") from None
    return builder.result


class _Dumper(yaml.SafeDumper):
    """Quotes every string that either version of YAML would read as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # Line breaks of YAML that are ordinary characters of the language survive only as escapes.
    style = None if _LINE_BREAKS.isdisjoint(text) else '"'
    node: yaml.ScalarNode = dumper.represent_scalar(_TAG + "str", text, style=style)
    return node


_Dumper.add_representer(str, _represent_text)

for _pattern, _first in (
    (_NULL, ["~", "n", "N", ""]),
    (_RADIX, list("-+0")),
    (_FLOAT, list("-+.0123456789")),
    (_INT, list("-+0123456789")),
    (_INFINITY, list("-+.")),
):
    _Dumper.add_implicit_resolver("tag:shoal,core:other", _pattern, _first)


def render(data: Any) -> str:
    """Block style, ending with a newline."""
    text = yaml.dump(
        data,
        Dumper=_Dumper,
        default_flow_style=False,
        sort_keys=False,
        allow_unicode=True,
        width=float("inf"),
    )
    # A lone scalar is closed with a document end mark, which belongs to a stream of documents.
    return text.removesuffix("...\n")
