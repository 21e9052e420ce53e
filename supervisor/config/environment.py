"""Configuration values that come from environment variables.

One explicit list; no name is derived from a key. Where two variables share a key the one listed
first wins. `NO_COLOR` is applied by `load`, after everything else here.

Failure: `ConfigError` that names the variable (chapter 81, section 5.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from supervisor.config.schema import KEYS, Shape
from supervisor.config.validate import UNSIGNED_MAX, ConfigError, apply_rules


class Override(msgspec.Struct, frozen=True):
    """A variable that sets a key."""

    variable: str
    key: str
    # A path, a session name and the like: an empty text says nothing, so it counts as unset.
    empty_is_unset: bool = False


OVERRIDES: Final[tuple[Override, ...]] = (
    Override("SHOAL_PROMPT_TEMPLATE", "prompt.template"),
    Override("SHOAL_PROMPT", "prompt.template"),
    Override("SHOAL_HISTORY_ENABLED", "history.enabled"),
    Override("SHOAL_HISTORY", "history.enabled"),
    Override("SHOAL_HISTORY_MAX_ENTRIES", "history.max_entries"),
    Override("SHOAL_HISTORY_FILE", "history.path", empty_is_unset=True),
    Override("SHOAL_HISTORY_DEDUP", "history.dedup"),
    Override("SHOAL_RENDER_COLOR", "render.color"),
    Override("SHOAL_RENDER_WIDTH", "render.width"),
    Override("SHOAL_RENDER_PAGING", "render.paging"),
    Override("SHOAL_RENDER_PAGER", "render.pager"),
    Override("SHOAL_RENDER_ECHO", "render.echo"),
    Override("SHOAL_EDITOR_MODE", "editor.mode"),
    Override("SHOAL_EDITOR_BRACKETED_PASTE", "editor.bracketed_paste"),
    Override("SHOAL_KERNEL_ENABLED", "kernel.enabled"),
    Override("SHOAL_KERNEL", "kernel.enabled"),
    Override("SHOAL_SESSION", "kernel.session", empty_is_unset=True),
    Override("SHOAL_KERNEL_SESSION", "kernel.session", empty_is_unset=True),
    Override("SHOAL_SOCKET", "kernel.socket", empty_is_unset=True),
    Override("SHOAL_REQUIRE_TOKEN", "kernel.require_token", empty_is_unset=True),
    Override("SHOAL_JOURNAL_ENABLED", "journal.enabled"),
    Override("SHOAL_LEASH_POLICY", "leash.policy", empty_is_unset=True),
    Override("SHOAL_COMPLETION_FUZZY", "completion.fuzzy"),
    Override("SHOAL_COMPLETION_CASE_INSENSITIVE", "completion.case_insensitive"),
    Override("SHOAL_COMPLETION_MAX_RESULTS", "completion.max_results"),
    Override("SHOAL_COMPLETION_MENU", "completion.menu"),
    Override("SHOAL_LOG", "logging.level", empty_is_unset=True),
    Override("SHOAL_LOG_FORMAT", "logging.format", empty_is_unset=True),
    Override("SHOAL_MAX_SESSIONS", "quotas.sessions", empty_is_unset=True),
    Override("SHOAL_CAPTURE_CAP_BYTES", "limits.capture_bytes", empty_is_unset=True),
    Override("SHOAL_CAPTURE_SPILL_CAP_BYTES", "limits.spill_bytes", empty_is_unset=True),
)

# Variables of process control that set no key: read by the path resolver, clients or workers.
PROCESS_VARIABLES: Final[Mapping[str, str]] = {
    "SHOAL_TOKEN": "bearer secret of clients",
    "SHOAL_TOKEN_FILE": "file with the bearer secret of clients, mode 0600",
    "SHOAL_NO_AUTOSTART": "not empty: never start a kernel",
    "SHOAL_CONFIG": "file that takes the place of the user's configuration file",
    "SHOAL_DATA_DIR": "state directory",
    "SHOAL_AGENT_SOCKET": "socket of the agent endpoint",
    "SHOAL_TOKEN_STORE": "token store",
    "SHOAL_SECRET_DIR": "secret store",
    "SHOAL_ADAPTER_PATH": "adapter directories in place of the default search",
}

_TRUE: Final = frozenset({"1", "true", "TRUE", "True", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "FALSE", "False", "no", "off"})


def overrides(environ: Mapping[str, str]) -> dict[str, object]:
    """Values by dotted path that the environment sets. Raises ConfigError."""
    values: dict[str, object] = {}
    for override in OVERRIDES:
        text = environ.get(override.variable)
        if text is None or (override.empty_is_unset and not text):
            continue
        value = _parse(override.variable, KEYS[override.key].shape, text)
        if override.key in values:
            continue
        broken = apply_rules(override.key, value)
        if broken:
            raise ConfigError(f"{override.variable}: {broken}")
        values[override.key] = value
    return values


def _parse(variable: str, shape: Shape, text: str) -> object:
    if not _is_utf8(text):
        raise ConfigError(f"{variable}: value is not UTF-8")
    if shape is Shape.BOOLEAN:
        return _boolean(variable, text)
    if shape is Shape.UNSIGNED:
        return _unsigned(variable, text)
    return text


def _is_utf8(text: str) -> bool:
    # The interpreter keeps undecodable bytes of the environment as lone surrogates.
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _boolean(variable: str, text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ConfigError(f"{variable}: expected true/false, got `{text}`")


def _unsigned(variable: str, text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= UNSIGNED_MAX:
        return int(text)
    raise ConfigError(f"{variable}: expected a non-negative integer, got `{text}`")
