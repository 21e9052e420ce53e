"""The configuration tree of the agent endpoint: every property with kind, default and rule.

A property is a dotted path; `*` in a row stands for a map key. This table is what `config/list`
shows, what values are checked against and what the typed settings are made from (chapter 70 §16,
§17).

Pure. Failure: ValueRefused with what a value should have been; UnknownProp for a path that is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

MAP_SECTIONS: Final = ("agents", "permission_profiles", "providers", "users")
SECTIONS: Final = ("agents", "permission_profiles", "providers", "rpc", "security", "users")
PROVIDER_KINDS: Final = ("shell", "openai", "acp")
BUILT_IN: Final = "shell"
RESERVED_ALIAS: Final = "default"
MASK: Final = "***MASKED***"
UNSET: Final = "<unset>"
_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ALIAS: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
INTEGER_MAX: Final = 2**63 - 1

RESOURCES: Final = ("system", "sessions", "config", "agents", "files", "logs", "tui", "tools")
VERBS: Final = ("create", "read", "update", "delete", "execute")


class UnknownProp(Exception):
    """No property has this path."""

    def __init__(self, prop: str) -> None:
        super().__init__(f"Unknown prop: {prop}")


class ValueRefused(Exception):
    """A value does not fit; the text names the property."""


@dataclass(frozen=True, slots=True)
class Prop:
    """One row: `path` with `*` for the map key, `kind` as `config/list` shows it."""

    path: str
    kind: str
    description: str
    default: Any = None
    secret: bool = False
    variants: tuple[str, ...] = ()
    target: str = ""
    low: float | None = None
    high: float | None = None

    @property
    def hint(self) -> str:
        """The `type_hint`: the kind with its range, variants or target."""
        if self.kind == "alias_ref":
            return f"alias_ref<{self.target}>"
        if self.variants:
            return "|".join(self.variants)
        if self.low is not None and self.high is not None:
            return f"{self.kind} {_plain(self.low)}..{_plain(self.high)}"
        return self.kind


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


_ROWS: Final = (
    Prop("rpc.max_local_connections", "integer", "connections of this endpoint", 512, low=0,
         high=INTEGER_MAX),
    Prop("rpc.max_sessions", "integer", "live sessions", 256, low=1, high=INTEGER_MAX),
    Prop("rpc.idle_session_secs", "integer", "a live session without turns is put away after that",
         600, low=1, high=INTEGER_MAX),
    Prop("security.trust_daemon_uid", "bool", "the router's own user is the shared operator", True),
    Prop("permission_profiles.*.admin", "bool", "everything, other principals' sessions included",
         False),
    Prop("permission_profiles.*.grants", "object", "verbs by resource", None),
    Prop("permission_profiles.*.allowed_agents", "string_array", "agents; `*` is all", None),
    Prop("permission_profiles.*.allowed_tools", "string_array", "tools of a turn; `*`: all", None),
    Prop("permission_profiles.*.config_write_paths", "string_array",
         "properties that may be changed: `a.b`, `a.*` or `*`", None),
    Prop("users.*.uid", "integer", "uid of the user's processes", low=0, high=2**32 - 1),
    Prop("users.*.permission_profiles", "string_array", "profiles, joined", None),
    Prop("users.*.principal_id", "string", "principal id; absent: `user:<name>`"),
    Prop("users.*.leash", "string", "policy principal that narrows the user's sessions"),
    Prop("agents.*.enabled", "bool", "whether sessions of the agent can be made", True),
    Prop("agents.*.provider", "alias_ref", "provider of the agent", BUILT_IN, target="providers"),
    Prop("agents.*.model", "string", "model name sent to the provider"),
    Prop("agents.*.system_prompt", "string", "text put before the conversation"),
    Prop("agents.*.tools", "string_array", "tools offered to the model",
         ["shoal", "ask_user", "update_plan"]),
    Prop("agents.*.max_turns", "integer", "model calls within one prompt", 25, low=1, high=200),
    Prop("agents.*.turn_timeout_secs", "integer", "a longer turn fails; 0 none", 0, low=0,
         high=INTEGER_MAX),
    Prop("agents.*.temperature", "float", "sampling temperature", low=0, high=2),
    Prop("agents.*.max_context_tokens", "integer", "budget that trimming keeps to", 120_000, low=1,
         high=INTEGER_MAX),
    Prop("agents.*.leash", "string", "policy principal of evaluation; absent: `agent:<alias>`"),
    Prop("agents.*.workspace.path", "string", "workspace; absent: below the data directory"),
    Prop("agents.*.approval_timeout_secs", "integer", "an unanswered approval is a no", 120, low=1,
         high=3600),
    Prop("agents.*.description", "string", "for people"),
    Prop("providers.*.kind", "enum", "how the model is reached", variants=PROVIDER_KINDS),
    Prop("providers.*.base_url", "string", "openai: `<base_url>/chat/completions` is called"),
    Prop("providers.*.api_key", "string", "openai: bearer key", secret=True),
    Prop("providers.*.api_key_env", "string", "openai: variable of the broker that holds the key"),
    Prop("providers.*.model", "string", "openai: default model"),
    Prop("providers.*.temperature", "float", "openai: default temperature", low=0, high=2),
    Prop("providers.*.max_tokens", "integer", "openai: limit of one answer", low=1,
         high=INTEGER_MAX),
    Prop("providers.*.headers", "object", "openai: extra request headers", secret=True),
    Prop("providers.*.connect_timeout_secs", "integer", "openai: time to connect", 10, low=1,
         high=3600),
    Prop("providers.*.idle_timeout_secs", "integer", "openai: time without a byte", 120, low=1,
         high=86400),
    Prop("providers.*.command", "string_array", "acp: program and arguments", None),
    Prop("providers.*.env", "object", "acp: added to a minimal environment", None),
    Prop("providers.*.startup_timeout_secs", "integer", "acp: time to start", 30, low=1, high=3600),
)  # fmt: skip

PROPS: Final[dict[str, Prop]] = {row.path: row for row in _ROWS}


def split(path: str) -> tuple[str, ...]:
    """The parts of a dotted path; a quoted part may hold dots. Raises UnknownProp."""
    parts: list[str] = []
    rest = path
    while True:
        if rest.startswith('"'):
            part, quote, rest = rest[1:].partition('"')
            if not quote or (rest and not rest.startswith(".")):
                raise UnknownProp(path)
            rest, more = rest[1:], bool(rest)
        else:
            part, dot, rest = rest.partition(".")
            more = bool(dot)
        if not part:
            raise UnknownProp(path)
        parts.append(part)
        if not more:
            return tuple(parts)


def pattern(parts: tuple[str, ...]) -> str:
    """The row's path of a concrete path."""
    if parts[0] in MAP_SECTIONS and len(parts) > 1:
        return ".".join((parts[0], "*", *parts[2:]))
    return ".".join(parts)


def find(path: str) -> tuple[tuple[str, ...], Prop]:
    """The parts and the row of a property. Raises UnknownProp."""
    parts = split(path)
    prop = PROPS.get(pattern(parts))
    if prop is None or (parts[0] in MAP_SECTIONS and _KEY.fullmatch(parts[1]) is None):
        raise UnknownProp(path)
    return parts, prop


def check_key(section: str, key: str) -> None:
    """Whether a map key may be made. Raises ValueRefused."""
    if section == "agents" and key == RESERVED_ALIAS:
        raise ValueRefused(f"alias `{RESERVED_ALIAS}` is reserved and cannot be created")
    wanted = _ALIAS if section == "agents" else _KEY
    if wanted.fullmatch(key) is None:
        raise ValueRefused(f"`{key}` is no valid key of {section}: expected {wanted.pattern}")


# --- values --------------------------------------------------------------------------------------


def coerce(prop: Prop, path: str, value: Any) -> Any:
    """The value as the kind of the property, from a JSON value. Raises ValueRefused."""
    found = _COERCE[prop.kind](path, value)
    if prop.kind == "enum" and found not in prop.variants:
        raise ValueRefused(
            f"{path}: unknown variant {value!r}, expected enum: one of {', '.join(prop.variants)}"
        )
    if prop.low is not None and prop.high is not None and not prop.low <= found <= prop.high:
        raise ValueRefused(f"{path}: expected {prop.hint}, got {value}")
    if pattern(split(path)) == "permission_profiles.*.grants":
        _check_grants(path, found)
    if prop.kind == "object" and prop.path != "permission_profiles.*.grants":
        _check_texts(path, found)
    return found


def _mismatch(path: str, kind: str, value: Any) -> ValueRefused:
    return ValueRefused(f"{path}: expected {kind}, got {_kind_of(value)}")


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "bool", int: "integer", float: "float", str: "string", list: "array"}
    return names.get(type(value), "object")


def _string(path: str, value: Any) -> str:
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) in (int, float):
        return msgspec.json.encode(value).decode()
    if type(value) is not str:
        raise _mismatch(path, "string", value)
    return value


def _bool(path: str, value: Any) -> bool:
    if type(value) is bool:
        return value
    if type(value) is str and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise _mismatch(path, "bool", value)


def _integer(path: str, value: Any) -> int:
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is str and re.fullmatch(r"[+-]?[0-9]{1,20}", value.strip()):
        value = int(value)
    if type(value) is not int or abs(value) > INTEGER_MAX:
        raise _mismatch(path, "integer", value)
    return value


def _float(path: str, value: Any) -> float:
    if type(value) is str:
        try:
            value = float(value)
        except ValueError:
            raise _mismatch(path, "float", value) from None
    if type(value) not in (int, float) or value != value or abs(value) == float("inf"):
        raise _mismatch(path, "float", value)
    return float(value)


def _exact(kind: str) -> Callable[[str, Any], str]:
    def check(path: str, value: Any) -> str:
        if type(value) is not str:
            raise _mismatch(path, kind, value)
        return value

    return check


def _string_array(path: str, value: Any) -> list[str]:
    items = _parsed(path, "string_array", value)
    if type(items) is not list:
        raise _mismatch(path, "string_array", value)
    for index, item in enumerate(items):
        if type(item) is not str:
            raise ValueRefused(
                f"{path}: element {index} is {_kind_of(item)}, expected string (string_array)"
            )
    return items


def _object(path: str, value: Any) -> dict[str, Any]:
    found = _parsed(path, "object", value)
    if type(found) is not dict:
        raise _mismatch(path, "object", value)
    return found


def _parsed(path: str, kind: str, value: Any) -> Any:
    """A string is taken as JSON text of the value."""
    if type(value) is not str:
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        raise _mismatch(path, kind, value) from None


def _check_grants(path: str, grants: dict[str, Any]) -> None:
    for resource, verbs in grants.items():
        if resource not in RESOURCES:
            raise ValueRefused(f"{path}: unknown resource {resource!r}")
        if type(verbs) is not list:
            raise _mismatch(f"{path}.{resource}", "string_array", verbs)
        for verb in verbs:
            if verb not in VERBS:
                raise ValueRefused(f"{path}.{resource}: unknown verb {verb!r}")


def _check_texts(path: str, members: dict[str, Any]) -> None:
    for name, text in members.items():
        if type(text) is not str:
            raise _mismatch(f"{path}.{name}", "string", text)


_COERCE: Final[dict[str, Callable[[str, Any], Any]]] = {
    "string": _string,
    "bool": _bool,
    "integer": _integer,
    "float": _float,
    "enum": _exact("enum"),
    "alias_ref": _exact("alias_ref"),
    "string_array": _string_array,
    "object": _object,
}


def display(prop: Prop, value: Any) -> str:
    """The display text of a value; None is shown as unset, a secret as its mask."""
    if value is None:
        return UNSET
    if prop.secret:
        return MASK
    if type(value) is str:
        return value
    return msgspec.json.encode(value).decode()
