"""How parameters and results of the agent endpoint are read and written (chapter 70 §4.4).

Parameters have snake_case names in their structs; the decoder accepts the camelCase twin of each,
at every level, and refuses twins that differ. Results are encoded from the same names; methods
marked `twins` also send the camelCase names.

Failure: `decode` reports -32602 with the member at fault in the message and in `data.field`.
"""

from __future__ import annotations

import types
import typing
from typing import Any, Final

import msgspec

from ipc.agent_envelope import AgentCode, agent_error

Json = msgspec.Raw
ABSENT: Final = msgspec.Raw(b"")


class Params(msgspec.Struct, gc=False):
    pass


class Result(msgspec.Struct, gc=False, omit_defaults=True):
    pass


class NoParams(Params):
    """The method takes none and ignores whatever is sent."""


class Method:
    """One method: its types, the grant it needs (None for `initialize`), and its twins."""

    __slots__ = ("_fields", "grant", "name", "params", "result", "summary", "twins")

    def __init__(
        self,
        name: str,
        grant: str | None,
        params: type[Any],
        result: Any,
        summary: str,
        *,
        twins: bool = False,
    ) -> None:
        self.name = name
        self.grant = grant
        self.params = params
        self.result = result
        self.summary = summary
        self.twins = twins
        self._fields = _Shape.of(params)

    def decode(self, raw: bytes | memoryview) -> Any:
        """The parameters of a call; empty `raw` means none. Raises RpcError."""
        if self.params is NoParams:
            return NoParams()
        if raw[:1] == b"[":
            raise invalid_params("params must be an object with named parameters")
        members = _members.decode(raw) if raw else {}
        return self._fields.decode(members, "")

    def encode(self, result: msgspec.Struct) -> bytes:
        """A result as JSON, with twins where the method sends them."""
        if not self.twins:
            return _encode(result)
        return _encode(with_twins(msgspec.to_builtins(result)))


_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_anything: Final = msgspec.json.Decoder()
_encode: Final = msgspec.json.Encoder().encode


def invalid_params(message: str, /, **data: Any) -> Exception:
    """The -32602 error, to be raised."""
    return agent_error(AgentCode.INVALID_PARAMS, message, "invalid_params", **data)


def camel(name: str) -> str:
    """The camelCase twin of a snake_case name."""
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def with_twins(members: dict[str, Any]) -> dict[str, Any]:
    """The members with the camelCase twin of each that has one, also inside lists of objects."""
    doubled: dict[str, Any] = {}
    for name, value in members.items():
        if type(value) is list and value and type(value[0]) is dict:
            value = [with_twins(item) for item in value]
        doubled[name] = value
        if "_" in name:
            doubled[camel(name)] = value
    return doubled


class _Shape:
    """How to decode one parameter object: a decoder per member, nested objects by their shape."""

    __slots__ = ("_decoders", "_nested", "_required", "_struct")

    def __init__(self, struct: type[Any]) -> None:
        self._struct = struct
        self._decoders: dict[str, msgspec.json.Decoder[Any]] = {}
        self._nested: dict[str, tuple[_Shape, bool]] = {}
        self._required: set[str] = set()
        hints = typing.get_type_hints(struct)
        for field in msgspec.structs.fields(struct):
            if field.required:
                self._required.add(field.name)
            hint = hints[field.name]
            inner, many = _inner_struct(hint)
            if inner is not None:
                self._nested[field.name] = (_Shape.of(inner), many)
            else:
                self._decoders[field.name] = msgspec.json.Decoder(hint)

    @classmethod
    def of(cls, struct: type[Any]) -> _Shape:
        if struct not in _shapes:
            _shapes[struct] = cls(struct)
        return _shapes[struct]

    def decode(self, members: dict[str, msgspec.Raw], place: str) -> Any:
        found: dict[str, Any] = {}
        for name in (*self._decoders, *self._nested):
            raw = _one_spelling(members, name, place)
            if raw is None:
                if name in self._required:
                    raise invalid_params(
                        f"missing required parameter `{place}{name}`", field=place + name
                    )
                continue
            value = self._member(name, raw, place + name)
            if value is not None:
                found[name] = value
            elif name in self._required:
                raise invalid_params(f"`{place}{name}` must not be null", field=place + name)
        return self._struct(**found)

    def _member(self, name: str, raw: msgspec.Raw, place: str) -> Any:
        nested = self._nested.get(name)
        try:
            if nested is None:
                return self._decoders[name].decode(raw)
            shape, many = nested
            if bytes(raw) == b"null":
                return None
            if not many:
                return shape.decode(_members.decode(raw), place + ".")
            items = _lists.decode(raw)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise invalid_params(f"`{place}`: {error}", field=place) from None
        return [shape.decode(item, f"{place}[{index}].") for index, item in enumerate(items)]


_shapes: dict[type[Any], _Shape] = {}
_lists: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


def _inner_struct(hint: Any) -> tuple[type[Any] | None, bool]:
    """The parameter struct inside a hint, and whether it comes as a list."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    if typing.get_origin(hint) is list:
        (item,) = typing.get_args(hint)
        return (item, True) if _is_params(item) else (None, False)
    return (hint, False) if _is_params(hint) else (None, False)


def _is_params(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Params)


def _one_spelling(members: dict[str, msgspec.Raw], name: str, place: str) -> msgspec.Raw | None:
    """The raw value under either spelling; both must agree when both are there."""
    twin = camel(name)
    raw, other = members.get(name), members.get(twin)
    if raw is None:
        return other
    if twin == name or other is None or _same(raw, other):
        return raw
    raise invalid_params(f"`{place}{name}` and `{place}{twin}` differ", field=place + name)


def _same(one: msgspec.Raw, other: msgspec.Raw) -> bool:
    if bytes(one) == bytes(other):
        return True
    try:
        first, second = _anything.decode(one), _anything.decode(other)
    except msgspec.DecodeError:
        return False
    return type(first) is type(second) and bool(first == second)
