"""Cutting terminal output into text runs and control functions (ECMA-48, as terminals read it).

`Decoder.feed` takes any pieces of a byte stream and calls the screen: `text` for runs of printable
characters, and one method for each control function that changes what is visible. Everything else
(colours, titles, mouse and paste modes, queries, device control strings) is consumed without
effect; queries are never answered. Bytes that are not UTF-8 become U+FFFD.

Failure: nothing is raised, whatever comes in. Parameters are clamped to PARAMETER_MAX, a control
function with more than PARAMETERS_MAX of them ignores the rest, a string that never ends is skipped
without being kept.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import Final

from worker.terminals.screen import Screen

PARAMETER_MAX: Final = 9999
PARAMETERS_MAX: Final = 32
# A control sequence longer than this is skipped as it comes.
SEQUENCE_CHARS_MAX: Final = 256

_PRINTABLE: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f]+")
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

_CONTROLS: Final[dict[str, Callable[[Screen], None]]] = {
    "\b": Screen.backspace,
    "\t": Screen.tab,
    "\n": Screen.line_feed,
    "\v": Screen.line_feed,
    "\f": Screen.line_feed,
    "\r": Screen.carriage_return,
    "\x0e": lambda screen: screen.use_charset(1),
    "\x0f": lambda screen: screen.use_charset(0),
}
_ESCAPES: Final[dict[str, Callable[[Screen], None]]] = {
    "7": Screen.save_cursor,
    "8": Screen.restore_cursor,
    "D": Screen.index,
    "E": Screen.next_line,
    "H": Screen.set_tab_stop,
    "M": Screen.reverse_index,
    "c": Screen.reset,
}

Parameters = list[int]


def _count(parameters: Parameters) -> int:
    """The first parameter where absent and 0 mean 1."""
    return parameters[0] if parameters and parameters[0] else 1


def _first(parameters: Parameters) -> int:
    return parameters[0] if parameters else 0


def _position(screen: Screen, parameters: Parameters) -> None:
    column = parameters[1] if len(parameters) > 1 and parameters[1] else 1
    screen.move_to(_count(parameters) - 1, column - 1)


def _margins(screen: Screen, parameters: Parameters) -> None:
    bottom = parameters[1] if len(parameters) > 1 and parameters[1] else screen.rows
    screen.set_margins(_count(parameters) - 1, bottom - 1)


def _modes(screen: Screen, parameters: Parameters, on: bool, private: bool) -> None:
    for number in parameters:
        screen.set_mode(number, on, private=private)


_FUNCTIONS: Final[dict[str, Callable[[Screen, Parameters], None]]] = {
    "@": lambda s, p: s.insert_characters(_count(p)),
    "A": lambda s, p: s.move_by(-_count(p), 0),
    "B": lambda s, p: s.move_by(_count(p), 0),
    "C": lambda s, p: s.move_by(0, _count(p)),
    "D": lambda s, p: s.move_by(0, -_count(p)),
    "E": lambda s, p: s.move_lines(_count(p)),
    "F": lambda s, p: s.move_lines(-_count(p)),
    "G": lambda s, p: s.move_to_column(_count(p) - 1),
    "H": _position,
    "I": lambda s, p: s.tab(_count(p)),
    "J": lambda s, p: s.erase_display(_first(p)),
    "K": lambda s, p: s.erase_line(_first(p)),
    "L": lambda s, p: s.insert_lines(_count(p)),
    "M": lambda s, p: s.delete_lines(_count(p)),
    "P": lambda s, p: s.delete_characters(_count(p)),
    "S": lambda s, p: s.scroll_up(_count(p)),
    "T": lambda s, p: s.scroll_down(_count(p)) if len(p) < 2 else None,
    "X": lambda s, p: s.erase_characters(_count(p)),
    "Z": lambda s, p: s.back_tab(_count(p)),
    "`": lambda s, p: s.move_to_column(_count(p) - 1),
    "a": lambda s, p: s.move_by(0, _count(p)),
    "b": lambda s, p: s.repeat(_count(p)),
    "d": lambda s, p: s.move_to_row(_count(p) - 1),
    "e": lambda s, p: s.move_by(_count(p), 0),
    "f": _position,
    "g": lambda s, p: s.clear_tab_stop(_first(p)),
    "h": lambda s, p: _modes(s, p, True, False),
    "l": lambda s, p: _modes(s, p, False, False),
    "r": _margins,
    "s": lambda s, p: s.save_cursor(),
    "u": lambda s, p: s.restore_cursor(),
}
_PRIVATE_FUNCTIONS: Final[dict[str, Callable[[Screen, Parameters], None]]] = {
    "J": lambda s, p: s.erase_display(_first(p)),
    "K": lambda s, p: s.erase_line(_first(p)),
    "h": lambda s, p: _modes(s, p, True, True),
    "l": lambda s, p: _modes(s, p, False, True),
}


class Decoder:
    # `_text` is what has not been acted on: between two calls a sequence that has not ended yet,
    # from its introducer on. `_string` is set inside a string (title, device control) whose content
    # is being skipped.

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._string = False

    def feed(self, data: bytes) -> None:
        self._text += self._utf8.decode(data)
        place = 0
        while place < len(self._text):
            after = self._step(place)
            if after is None:
                break
            place = after
        self._text = self._text[place:]

    def _step(self, place: int) -> int | None:
        """Act on what stands at `place`; where to go on, None when more text is needed."""
        if self._string:
            return self._skip_string(place)
        run = _PRINTABLE.match(self._text, place)
        if run is not None:
            self._screen.text(run[0])
            return run.end()
        char = self._text[place]
        control = _CONTROLS.get(char)
        if control is not None:
            control(self._screen)
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
        action = _ESCAPES.get(kind)
        if action is not None:
            action(self._screen)
        return place

    def _with_intermediate(self, kind: str, place: int) -> int | None:
        """Character sets, the alignment test, and others without effect."""
        if place >= len(self._text):
            return None
        final = self._text[place]
        if not "0" <= final <= "~":
            return place
        if kind in "()":
            self._screen.designate("()".index(kind), final)
        elif kind == "#" and final == "8":
            self._screen.fill("E")
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
        control = _CONTROLS.get(broken[2])
        if control is None:
            # Cancelled, or another sequence begins.
            return broken.end() if broken[2] in "\x18\x1a\x7f" else broken.end() - 1
        # A control character inside a sequence acts at once; the sequence goes on without it.
        control(self._screen)
        self._text = self._text[: broken.end() - 1] + self._text[broken.end() :]
        return start

    def _dispatch(self, parameters: str, intermediates: str, final: str) -> None:
        if intermediates:
            if intermediates == "!" and final == "p":
                self._screen.soft_reset()
            return
        private = parameters[:1] if parameters[:1] in "<=>?" else ""
        if private not in ("", "?"):
            return
        functions = _PRIVATE_FUNCTIONS if private else _FUNCTIONS
        action = functions.get(final)
        if action is not None:
            action(self._screen, _numbers(parameters[len(private) :]))


def _numbers(text: str) -> Parameters:
    """Parameters as numbers; sub-parameters behind a colon are left out."""
    if not text:
        return []
    numbers = []
    for part in text.split(";", PARAMETERS_MAX)[:PARAMETERS_MAX]:
        digits = part.partition(":")[0]
        usable = digits.isdigit() and len(digits) <= len(str(PARAMETER_MAX))
        numbers.append(int(digits) if usable else PARAMETER_MAX if digits.isdigit() else 0)
    return numbers
