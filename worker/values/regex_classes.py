"""Character classes of the regex dialect: names, ranges and set operations (chapter 20 §1.1).

A class is kept as `ClassText`, an expression of the engine that matches exactly one character
(`[a-z\\p{L}]`), so that the engine's own Unicode tables decide. Where the dialect needs set
operations the engine does not have, the members are read off the engine once (`members`) and
combined as ranges.

Failure: `UnknownClass` for a property or class name that does not exist.
"""

from __future__ import annotations

import re
from array import array
from functools import lru_cache
from typing import Final

import re2

Ranges = tuple[tuple[int, int], ...]

CODE_POINT_MAX: Final = 0x10FFFF
_SURROGATE_FIRST: Final = 0xD800
_SURROGATE_LAST: Final = 0xDFFF
EVERYTHING: Final[Ranges] = ((0, _SURROGATE_FIRST - 1), (_SURROGATE_LAST + 1, CODE_POINT_MAX))
_MEMORY_BYTES_MAX: Final = 64 * 2**20


class UnknownClass(Exception):
    """A class or property name the dialect does not have."""


def engine_options() -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES_MAX
    return options


# --- ranges ---------------------------------------------------------------------------------------


def _normal(ranges: list[tuple[int, int]]) -> Ranges:
    """Sorted, disjoint ranges without surrogates."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    result: list[tuple[int, int]] = []
    for low, high in merged:
        below, above = min(high, _SURROGATE_FIRST - 1), max(low, _SURROGATE_LAST + 1)
        if low <= below:
            result.append((low, below))
        if above <= high:
            result.append((above, high))
    return tuple(result)


def complement(ranges: Ranges) -> Ranges:
    gaps, start = [], 0
    for low, high in ranges:
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= CODE_POINT_MAX:
        gaps.append((start, CODE_POINT_MAX))
    return _normal(gaps)


def union(a: Ranges, b: Ranges) -> Ranges:
    return _normal([*a, *b])


def intersection(a: Ranges, b: Ranges) -> Ranges:
    return complement(union(complement(a), complement(b)))


def difference(a: Ranges, b: Ranges) -> Ranges:
    return intersection(a, complement(b))


def symmetric_difference(a: Ranges, b: Ranges) -> Ranges:
    return union(difference(a, b), difference(b, a))


def ascii_folded(ranges: Ranges) -> Ranges:
    """The ranges with both cases of their ASCII letters."""
    other_case = []
    for low, high in ranges:
        for code in range(low, min(high, 0x7F) + 1):
            if chr(code).isalpha():
                other_case.append((code ^ 0x20, code ^ 0x20))
    return _normal([*ranges, *other_case])


def char_text(code: int) -> str:
    """One character as a literal of the engine, inside or outside a class."""
    char = chr(code)
    return char if char.isascii() and char.isalnum() else f"\\x{{{code:X}}}"


def range_items(ranges: Ranges) -> str:
    """The ranges as the inside of a bracketed class."""
    return "".join(
        char_text(low) if low == high else f"{char_text(low)}-{char_text(high)}"
        for low, high in ranges
    )


def class_of(ranges: Ranges) -> str:
    """A bracketed class of exactly these characters; one that matches nothing when empty."""
    return f"[{range_items(ranges)}]" if ranges else f"[^{range_items(EVERYTHING)}]"


@lru_cache(maxsize=1)
def _all_characters() -> bytes:
    codes = array("I", range(_SURROGATE_FIRST))
    codes.extend(range(_SURROGATE_LAST + 1, CODE_POINT_MAX + 1))
    return codes.tobytes().decode("utf-32").encode()


@lru_cache(maxsize=256)
def members(class_text: str) -> Ranges:
    """The characters a one-character expression of the engine matches."""
    everything = _all_characters()
    runs = re2.compile(f"(?:{class_text})+".encode(), engine_options())
    found = []
    for run in runs.finditer(everything):
        text = run.group().decode()
        found.append((ord(text[0]), ord(text[-1])))
    return _normal(found)


# --- named classes --------------------------------------------------------------------------------

# The inside of a bracketed class for each Perl class: (Unicode, ASCII).
PERL_ITEMS: Final[dict[str, tuple[str, str]]] = {
    "d": (r"\p{Nd}", "0-9"),
    "s": (
        r"\t-\r\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}",
        r"\t-\r\x20",
    ),
    # Letters, marks, digits, connectors and joiners, and the circled and squared letters, which
    # are alphabetic symbols.
    "w": (
        r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}"
        r"\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}",
        "0-9A-Za-z_",
    ),
}

POSIX_ITEMS: Final[dict[str, str]] = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x{0}-\x{7F}",
    "blank": r"\t\x20",
    "cntrl": r"\x{0}-\x{1F}\x{7F}",
    "digit": "0-9",
    "graph": r"\x21-\x7E",
    "lower": "a-z",
    "print": r"\x20-\x7E",
    "punct": r"\x21-\x2F\x3A-\x40\x5B-\x60\x7B-\x7E",
    "space": r"\t-\r\x20",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}

_CATEGORIES: Final[dict[str, str]] = {
    "letter": "L", "cased_letter": "LC", "uppercase_letter": "Lu", "lowercase_letter": "Ll",
    "titlecase_letter": "Lt", "modifier_letter": "Lm", "other_letter": "Lo", "mark": "M",
    "combining_mark": "M", "nonspacing_mark": "Mn", "spacing_mark": "Mc", "enclosing_mark": "Me",
    "number": "N", "decimal_number": "Nd", "digit": "Nd", "letter_number": "Nl",
    "other_number": "No", "punctuation": "P", "punct": "P", "connector_punctuation": "Pc",
    "dash_punctuation": "Pd", "open_punctuation": "Ps", "close_punctuation": "Pe",
    "initial_punctuation": "Pi", "final_punctuation": "Pf", "other_punctuation": "Po",
    "symbol": "S", "math_symbol": "Sm", "currency_symbol": "Sc", "modifier_symbol": "Sk",
    "other_symbol": "So", "separator": "Z", "space_separator": "Zs", "line_separator": "Zl",
    "paragraph_separator": "Zp", "other": "C", "control": "Cc", "cntrl": "Cc", "format": "Cf",
    "private_use": "Co", "surrogate": "Cs", "unassigned": "Cn",
}  # fmt: skip
_CATEGORY_CODES: Final = frozenset(
    re.findall(r"[A-Z][a-z]?", "LLuLlLtLmLoMMnMcMeNNdNlNoPPcPdPsPePiPfPoSSmScSkSoZZsZlZpCCcCfCo")
)
_CASED: Final = r"\p{Lu}\p{Ll}\p{Lt}"
_ASSIGNED: Final = r"\p{L}\p{M}\p{N}\p{P}\p{S}\p{Z}\p{Cc}\p{Cf}\p{Co}"
_LOWER: Final = (
    r"\p{Ll}\x{AA}\x{BA}\x{2B0}-\x{2B8}\x{2C0}\x{2C1}\x{2E0}-\x{2E4}\x{345}\x{37A}\x{10FC}"
    r"\x{1D2C}-\x{1D6A}\x{1D78}\x{1D9B}-\x{1DBF}\x{2071}\x{207F}\x{2090}-\x{209C}"
    r"\x{2170}-\x{217F}\x{24D0}-\x{24E9}\x{2C7C}\x{2C7D}\x{A69C}\x{A69D}\x{A770}"
    r"\x{A7F2}-\x{A7F4}\x{A7F8}\x{A7F9}\x{AB5C}-\x{AB5F}\x{AB69}\x{10780}\x{10783}-\x{10785}"
    r"\x{10787}-\x{107B0}\x{107B2}-\x{107BA}\x{1E030}-\x{1E06D}"
)
_UPPER: Final = (
    r"\p{Lu}\x{2160}-\x{216F}\x{24B6}-\x{24CF}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}"
    r"\x{1F170}-\x{1F189}"
)
_PROPERTIES: Final[dict[str, str]] = {
    "any": r"\x{0}-\x{10FFFF}",
    "ascii": r"\x{0}-\x{7F}",
    "assigned": _ASSIGNED,
    "lc": _CASED,
    "lowercase": _LOWER,
    "lower": _LOWER,
    "uppercase": _UPPER,
    "upper": _UPPER,
    "white_space": PERL_ITEMS["s"][0],
    "whitespace": PERL_ITEMS["s"][0],
    "wspace": PERL_ITEMS["s"][0],
    "space": PERL_ITEMS["s"][0],
}
_SCRIPT_CODES: Final[dict[str, str]] = {
    "arab": "Arabic", "armn": "Armenian", "beng": "Bengali", "bopo": "Bopomofo",
    "brai": "Braille", "cyrl": "Cyrillic", "deva": "Devanagari", "ethi": "Ethiopic",
    "geor": "Georgian", "grek": "Greek", "gujr": "Gujarati", "guru": "Gurmukhi",
    "hang": "Hangul", "hani": "Han", "hebr": "Hebrew", "hira": "Hiragana", "kana": "Katakana",
    "khmr": "Khmer", "knda": "Kannada", "laoo": "Lao", "latn": "Latin", "mlym": "Malayalam",
    "mong": "Mongolian", "mymr": "Myanmar", "orya": "Oriya", "sinh": "Sinhala", "syrc": "Syriac",
    "taml": "Tamil", "telu": "Telugu", "thaa": "Thaana", "thai": "Thai", "tibt": "Tibetan",
    "zinh": "Inherited", "zyyy": "Common",
}  # fmt: skip
_KEYS: Final[dict[str, str]] = {
    "gc": "category", "general_category": "category", "sc": "script", "script": "script",
}  # fmt: skip


def _loose(name: str) -> str:
    return name.strip().replace(" ", "_").replace("-", "_").lower()


def _category(name: str) -> str | None:
    found = _CATEGORIES.get(name)
    if found is None and name.capitalize() in _CATEGORY_CODES:
        found = name.capitalize()
    if found == "LC":
        return _CASED
    if found == "Cs":
        return ""
    if found == "Cn" or name == "cn":
        return range_items(complement(members(f"[{_ASSIGNED}]")))
    return None if found is None else f"\\p{{{found}}}"


@lru_cache(maxsize=256)
def _script(name: str) -> str | None:
    canonical = _SCRIPT_CODES.get(name) or "_".join(p.capitalize() for p in name.split("_"))
    try:
        re2.compile(f"\\p{{{canonical}}}".encode(), engine_options())
    except re2.error:
        return None
    # The engine also takes one-letter and two-letter categories here, which are no scripts.
    return f"\\p{{{canonical}}}" if len(canonical) > 2 else None


def property_items(text: str) -> tuple[str, bool]:
    """The inside of a class for `\\p{TEXT}`, and whether the text itself asks for the complement.

    Categories (short and long names), scripts, and `any`, `ascii`, `assigned`, `alphabetic`,
    `lowercase`, `uppercase`, `white_space`; also as `gc=NAME`, `sc=NAME` with `=`, `:` or `!=`.
    """
    negated = False
    key, name = "", text
    for sign in ("!=", "=", ":"):
        if sign in text:
            key, _, name = text.partition(sign)
            negated = sign == "!="
            break
    kind = _KEYS.get(_loose(key)) if key else "any"
    name = _loose(name)
    items: str | None = None
    if kind in ("category", "any"):
        items = _category(name)
    if items is None and kind == "any":
        items = _alphabetic() if name in ("alphabetic", "alpha") else _PROPERTIES.get(name)
    if items is None and kind in ("script", "any") and name.replace("_", "").isalpha():
        items = _script(name)
    if items is None:
        raise UnknownClass(f"Unicode property `{text}` not found")
    return items, negated


def _alphabetic() -> str:
    return rf"{_LOWER}{_UPPER}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{Nl}}"
