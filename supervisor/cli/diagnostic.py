"""Errors of source text, shown with their place (chapter 81, section 3.1).

    tool.shl:3:9: type_error: no truthiness: expected bool
      if name { 1 }
              ^
      hint: compare explicitly

Pure. Failure: none; offsets outside the source are clamped to it.
"""

from __future__ import annotations

from typing import Any

from wcwidth import wcwidth

from supervisor.cli.output import BOLD_RED, YELLOW, Output

STDIN_NAME = "<stdin>"
INTERACTIVE_NAME = "<repl>"


def locate(source: str, offset: int) -> tuple[int, int, str]:
    """Line and column (both from 1, the column in characters) and the text of the line at a byte
    offset."""
    data = source.encode(errors="surrogatepass")
    before = data[: max(0, min(offset, len(data)))].decode(errors="ignore")
    line_start = before.rfind("\n") + 1
    rest = source[line_start:]
    return before.count("\n") + 1, len(before) - line_start + 1, rest.split("\n", 1)[0].rstrip("\r")


def diagnostic(
    out: Output,
    name: str,
    source: str,
    kind: str,
    message: str,
    *,
    span: dict[str, Any] | None,
    hint: str | None,
    stderr: str | None = None,
) -> str:
    """The whole text, with a newline at its end."""
    lines = []
    if stderr:
        lines.append(stderr.removesuffix("\n"))
    if span is None:
        lines.append(out.paint(f"{name}: {kind}: {message}", BOLD_RED))
    else:
        line, column, text = locate(source, int(span.get("start", 0)))
        lines.append(out.paint(f"{name}:{line}:{column}: {kind}: {message}", BOLD_RED))
        lines.append(f"  {text}")
        lines.append(f"  {_blanks(text[: column - 1])}{out.paint('^', BOLD_RED)}")
    if hint:
        lines.append("  " + out.paint(f"hint: {hint}", YELLOW))
    return "\n".join(lines) + "\n"


def _blanks(text: str) -> str:
    """Blanks as wide as the text on a terminal."""
    return "".join("\t" if char == "\t" else " " * max(wcwidth(char), 0) for char in text)
