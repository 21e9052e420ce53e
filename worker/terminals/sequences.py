"""Cutting terminal output into text runs and control functions (ECMA-48, as terminals read it).

`Decoder.feed` takes any pieces of a byte stream and calls the screen, by pyte's names for events:
`draw` for runs of printable characters, and one method for each control function. The scanner
replaces pyte's, which raises for parameters a function does not expect and reads character by
character. Titles, mouse and paste modes, queries and device control strings are consumed without
effect; queries are never answered. Bytes that are not UTF-8 become U+FFFD.

Failure: nothing is raised, whatever comes in. Parameters are clamped to PARAMETER_MAX, a control
function with more than PARAMETERS_MAX of them ignores the rest, a string that never ends is skipped
without being kept.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import Any, Final

from pyte import escape
from pyte.streams import Stream

from worker.terminals.screen import Screen

PARAMETER_MAX: Final = 9999
PARAMETERS_MAX: Final = 32
# A control sequence longer than this is skipped as it comes.
SEQUENCE_CHARS_MAX: Final = 256

_PRINTABLE: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f]+")
# Lines of plain text, which a screen can take all at once.
_LINES: Final = re.compile(r"[ -~\r]*\n[ -~\r\n]*")
# Text, line ends, tabs and colours: of these only the colours matter once they scrolled away.
_SCROLLING: Final = re.compile(r"(?:[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]+|\x1b\[[0-9;:]*m)+")
_RESETS: Final = ("\x1b[m", "\x1b[0m")
_COLOUR: Final = re.compile(r"\x1b\[([0-9;:]*)m")
# Parameter and intermediate characters, then the final one.
_CONTROL_SEQUENCE: Final = re.compile(r"([0-?]*)([ -/]*)([@-~])")
_INCOMPLETE: Final = re.compile(r"[0-?]*[ -/]*\Z")
_BROKEN: Final = re.compile(r"([ -?]*)(.)", re.DOTALL)
_STRING_END: Final = re.compile("[\x07\x1b\x9c\x18\x1a]")

# Eight-bit control characters and the escape sequences they stand for.
_C1: Final = {
    "\x84": "D",
    "\x85": "E",
    "\x88": "H",
    "\x8d": "M",
    "\x90": "P",
    "\x98": "X",
    "\x9b": "[",
    "\x9d": "]",
    "\x9e": "^",
    "\x9f": "_",
}
_STRINGS: Final = frozenset("PX]^_")

# pyte's tables of events, and what they lack.
_CONTROLS: Final[dict[str, str]] = Stream.basic
_ESCAPES: Final[dict[str, str]] = {**Stream.escape, escape.NEL: "next_line"}
_FUNCTIONS: Final[dict[str, str]] = {
    **Stream.csi,
    "I": "tab",
    "S": "scroll_up",
    "T": "scroll_down",
    "Z": "back_tab",
    "`": "cursor_to_column",
    "b": "repeat",
    "s": "save_cursor",
    "u": "restore_cursor",
}
_PRIVATE_FUNCTIONS: Final = frozenset((escape.ED, escape.EL, escape.SM, escape.RM))
# How many parameters a function takes; the rest is ignored. Functions that are not here take one.
_ALL: Final = PARAMETERS_MAX
_ARITY: Final[dict[str, int]] = {
    "H": 2,
    "f": 2,
    "r": 2,
    "h": _ALL,
    "l": _ALL,
    "m": _ALL,
    "s": 0,
    "u": 0,
}
# Functions for which no parameter, or 0, means 1.
_COUNTED: Final = frozenset("ISTZb")

_COLOURS: Final = ("38", "48")
_UNDERLINE_OFF: Final = "24"


class Decoder:
    # `_text` is what has not been acted on: between two calls a sequence that has not ended yet,
    # from its introducer on. `_string` is set inside a string (title, device control) whose content
    # is being skipped.

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._string = False
        self._controls = _bound(screen, _CONTROLS)
        self._escapes = _bound(screen, _ESCAPES)
        self._functions = _bound(screen, _FUNCTIONS)

    def feed(self, data: bytes) -> None:
        self._text += self._utf8.decode(data)
        place = self._skip_unseen()
        while place < len(self._text):
            after = self._step(place)
            if after is None:
                break
            place = after
        self._text = self._text[place:]

    def _skip_unseen(self) -> int:
        """Where to begin to draw: lines that the text itself scrolls away are not drawn.

        Behind the point after which there are as many line feeds as rows nothing of what came
        before can be seen, if that was text and colours only. The colours are what stays of it.
        """
        screen = self._screen
        if self._string or not screen.scrolls_whole or self._text.count("\n") <= screen.lines:
            return 0
        found = _SCROLLING.match(self._text)
        if found is None:
            return 0
        place = found.end()
        for _ in range(screen.lines + 1):
            place = self._text.rfind("\n", 0, place)
            if place < 0:
                return 0
        if self._text[place - 1 : place] != "\r":
            return 0
        # What was set before the last full reset does not matter.
        reset = max(self._text.rfind(text, 0, place) for text in _RESETS)
        for parameters in _COLOUR.findall(self._text, max(reset, 0), place):
            screen.select_graphic_rendition(*_rendition(parameters))
        screen.start_over()
        return place + 1

    def _step(self, place: int) -> int | None:
        """Act on what stands at `place`; where to go on, None when more text is needed."""
        if self._string:
            return self._skip_string(place)
        lines = _LINES.match(self._text, place)
        if lines is not None:
            self._screen.draw_lines(lines[0])
            return lines.end()
        run = _PRINTABLE.match(self._text, place)
        if run is not None:
            self._screen.draw(run[0])
            return run.end()
        char = self._text[place]
        control = self._controls.get(char)
        if control is not None:
            control()
            return place + 1
        introducer = _C1.get(char)
        if introducer is not None:
            return self._escape(introducer, place, place + 1)
        if char != "\x1b":
            return place + 1
        if place + 1 >= len(self._text):
            return None
        return self._escape(self._text[place + 1], place, place + 2)

    def _skip_string(self, place: int) -> int:
        found = _STRING_END.search(self._text, place)
        if found is None:
            return len(self._text)
        self._string = False
        # An escape ends the string and begins a sequence: what follows is one without effect.
        return found.start() if found[0] == "\x1b" else found.end()

    def _escape(self, kind: str, start: int, place: int) -> int | None:
        """Act on the escape sequence that began at `start`; `place` is behind its `kind`."""
        if kind == "[":
            return self._control_sequence(start, place)
        if kind in _STRINGS:
            self._string = True
            return place
        if " " <= kind <= "/":
            return self._with_intermediate(kind, place)
        if kind < " " or kind > "~":
            # A control character within an escape sequence cuts it short.
            return place - 1
        action = self._escapes.get(kind)
        if action is not None:
            action()
        return place

    def _with_intermediate(self, kind: str, place: int) -> int | None:
        """Character sets, the alignment test, and others without effect."""
        if place >= len(self._text):
            return None
        final = self._text[place]
        if not "0" <= final <= "~":
            return place
        if kind in "()":
            self._screen.define_charset(final, mode=kind)
        elif kind == "#" and final == escape.DECALN:
            self._screen.alignment_display()
        return place + 1

    def _control_sequence(self, start: int, place: int) -> int | None:
        found = _CONTROL_SEQUENCE.match(self._text, place)
        if found is not None:
            self._dispatch(found[1], found[2], found[3])
            return found.end()
        incomplete = _INCOMPLETE.match(self._text, place)
        if incomplete is not None:
            return None if len(incomplete[0]) <= SEQUENCE_CHARS_MAX else len(self._text)
        broken = _BROKEN.match(self._text, place)
        assert broken is not None
        control = self._controls.get(broken[2])
        if control is None:
            # Cancelled, or another sequence begins.
            return broken.end() if broken[2] in "\x18\x1a\x7f" else broken.end() - 1
        # A control character inside a sequence acts at once; the sequence goes on without it.
        control()
        self._text = self._text[: broken.end() - 1] + self._text[broken.end() :]
        return start

    def _dispatch(self, parameters: str, intermediates: str, final: str) -> None:
        if intermediates:
            if intermediates == "!" and final == "p":
                self._screen.soft_reset()
            return
        private = parameters[:1] if parameters[:1] in "<=>?" else ""
        if private not in ("", "?") or (private and final not in _PRIVATE_FUNCTIONS):
            return
        action = self._functions.get(final)
        if action is None:
            return
        numbers = (
            _rendition(parameters) if final == escape.SGR else _numbers(parameters[len(private) :])
        )
        if final == "T" and len(numbers) > 1:
            # Highlight mouse tracking shares the final character of scrolling down.
            return
        if final in _COUNTED:
            numbers = [numbers[0] if numbers and numbers[0] else 1]
        numbers = numbers[: _ARITY.get(final, 1)]
        if private:
            action(*numbers, private=True)
        else:
            action(*numbers)


def _bound(screen: Screen, events: dict[str, str]) -> dict[str, Callable[..., Any]]:
    return {key: getattr(screen, event) for key, event in events.items()}


def _rendition(text: str) -> list[int]:
    """Parameters of a rendition; colours written with colons as those with semicolons."""
    if ":" not in text:
        return _numbers(text)
    parts: list[str] = []
    for part in text.split(";", PARAMETERS_MAX)[:PARAMETERS_MAX]:
        head, *details = part.split(":")
        if head in _COLOURS and len(details) > 1:
            # `38:2::R:G:B` has a colour space between; `38:2:R:G:B` and `38:5:N` do not.
            if details[0] == "2" and len(details) > 4:
                del details[1]
            parts += [head, *details[:4]]
        elif head == "4" and details == ["0"]:
            parts.append(_UNDERLINE_OFF)
        elif head not in _COLOURS:
            parts.append(head)
    return _numbers(";".join(parts))


def _numbers(text: str) -> list[int]:
    """Parameters as numbers; sub-parameters behind a colon are left out."""
    if not text:
        return []
    numbers = []
    for part in text.split(";", PARAMETERS_MAX)[:PARAMETERS_MAX]:
        digits = part.partition(":")[0]
        usable = digits.isdigit() and len(digits) <= len(str(PARAMETER_MAX))
        numbers.append(int(digits) if usable else PARAMETER_MAX if digits.isdigit() else 0)
    return numbers
