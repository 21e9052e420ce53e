"""What an agent reads: bounded text, and the address under which the rest is (chapter 80, 8).

Pure. Failure: none.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

TEXT_BYTES_MAX: Final = 65_536
KEPT_BYTES_MAX: Final = TEXT_BYTES_MAX - 96
SCHEME: Final = "shoal://"


def pretty(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def bounded(text: str, address: str | None = None) -> str:
    """At most 64 KiB of UTF-8: whole lines from the top, then a marker that names the address."""
    data = text.encode("utf-8", "replace")
    if len(data) <= TEXT_BYTES_MAX:
        return text
    total = text.count("\n") + (not text.endswith("\n"))
    # The last line break within the budget ends the last line that is kept.
    end = data.rfind(b"\n", 0, KEPT_BYTES_MAX) + 1
    kept = data[: end or KEPT_BYTES_MAX].decode("utf-8", "ignore")
    lines = data.count(b"\n", 0, end)
    return f"{kept}…({total - lines} more lines, fetch via {address or 'ref'})"


def _full(reference: str) -> str:
    if reference.startswith(SCHEME):
        return reference
    kind, colon, rest = reference.partition(":")
    return f"{SCHEME}{kind}/{rest}" if colon else SCHEME + reference


def _short(reference: str) -> str:
    if not reference.startswith(SCHEME):
        return reference
    return reference.removeprefix(SCHEME).replace("/", ":", 1)


def _reference(result: Any, *places: tuple[str, ...]) -> str | None:
    for place in places:
        found = result
        for step in place:
            found = found.get(step) if isinstance(found, dict) else None
        if isinstance(found, str) and found:
            return found
    return None


def tool_result(result: Any) -> dict[str, Any]:
    """The result of `tools/call` around what the kernel answered."""
    reference = _reference(result, ("uri",), ("value", "uri"), ("ref",))
    render = result.get("render") if isinstance(result, dict) else None
    return _result(result, render if isinstance(render, str) else pretty(result), reference, False)


def tool_error(error: dict[str, Any]) -> dict[str, Any]:
    """The result of `tools/call` around an error object of the kernel."""
    reference = _reference(error, ("data", "uri"), ("data", "ref"))
    return _result(error, pretty(error), reference, True)


def _result(structured: Any, text: str, reference: str | None, failed: bool) -> dict[str, Any]:
    uri = None if reference is None else _full(reference)
    content: list[dict[str, Any]] = [{"type": "text", "text": bounded(text, uri)}]
    if reference is not None:
        content.append(
            {
                "type": "resource_link",
                "uri": uri,
                "name": _short(reference),
                "mimeType": "application/json",
            }
        )
    return {"content": content, "structuredContent": structured, "isError": failed}
