"""Reading literals that have an inside: numbers, strings with holes, tagged text, payloads.

A string is read from its quote in one pass; a hole's text is parsed where it stands, as a program
that must be one expression. Every reader is linear in the text it takes, except that a hole is
scanned for its end before it is parsed, once per level of nesting.
"""

from __future__ import annotations

from worker.language import diagnostics
from worker.language.ast import (
    DateTime,
    Expr,
    ExprPart,
    ExprStmt,
    LangBlock,
    LitPart,
    Regex,
    Str,
    StrInterp,
    StrPart,
)
from worker.language.cursor import LEAF_HEIGHT, MODE_PLAIN, Cursor
from worker.language.diagnostics import ESCAPES_HINT, ParseError
from worker.language.literals import (
    code_point,
    dedent_parts,
    dedent_raw,
    read_number,
    simple_escape,
)
from worker.language.tokens import (
    BETWEEN_BRACES,
    EOF,
    PLAIN_STRING,
    RAW_STRING,
    STRING_TEXT,
    TRIPLE_TEXT,
    UNICODE_ESCAPE,
)

TRIPLE = '"""'
TRIPLE_RAW = "'''"
HOLE_HEIGHT = 3


class StringReader(Cursor):
    __slots__ = ()

    def number(self) -> Expr:
        """Read the number or time at the current token; its end becomes the token's end."""
        node, self.end = read_number(self.src, self.start, self.limit, self.span)
        self.height = LEAF_HEIGHT
        return node

    def tagged(self) -> Expr:
        """Read re"…" or t"…" at the current token; its end becomes the token's end."""
        opening = self.end
        closing = self.src.find('"', opening + 1, self.limit)
        if closing < 0:
            where = self.span(self.start, self.limit)
            raise ParseError("unterminated tagged literal", where)
        tag = self.src[self.start : self.end]
        self.end = closing + 1
        content = self.src[opening + 1 : closing]
        where = self.span(self.start, self.end)
        self.height = LEAF_HEIGHT
        return Regex(content, where) if tag == "re" else DateTime(content, where)

    def string_at(self, position: int) -> tuple[Expr, int]:
        """Read the string whose quote is at `position`; return its node and end."""
        src, limit = self.src, self.limit
        self.height = LEAF_HEIGHT
        if src[position] == "'":
            content, end = self.raw_string_at(position)
            return Str(content, self.span(position, end)), end
        if src.startswith(TRIPLE, position, limit):
            closing = src.find(TRIPLE, position + 3, limit)
            if closing < 0:
                raise ParseError("unterminated string", self.span(position, limit))
            parts, _ = self._pieces(position, position + 3, closing, triple=True)
            end = closing + 3
            return self._string_node(dedent_parts(parts), position, end), end
        plain = PLAIN_STRING(src, position, limit)
        if plain:
            end = plain.end()
            return Str(plain[1], self.span(position, end)), end
        parts, end = self._pieces(position, position + 1, limit, triple=False)
        return self._string_node(parts, position, end), end

    def raw_string_at(self, position: int) -> tuple[str, int]:
        """Content and end of the `'…'` or `'''…'''` string at `position`."""
        src, limit = self.src, self.limit
        if src.startswith(TRIPLE_RAW, position, limit):
            closing = src.find(TRIPLE_RAW, position + 3, limit)
            if closing < 0:
                raise ParseError("unterminated raw string", self.span(position, limit))
            return dedent_raw(src[position + 3 : closing]), closing + 3
        found = RAW_STRING(src, position, limit)
        if found:
            return found[1], found.end()
        newline = src.find("\n", position, limit)
        if newline >= 0:
            raise self.lesson(diagnostics.RAW_NEWLINE, position, newline)
        raise ParseError("unterminated raw string", self.span(position, limit))

    def _string_node(self, parts: list[str | Expr], start: int, end: int) -> Expr:
        where = self.span(start, end)
        if not parts:
            return Str("", where)
        if len(parts) == 1 and isinstance(parts[0], str):
            return Str(parts[0], where)
        nodes: list[StrPart] = [
            LitPart(part) if isinstance(part, str) else ExprPart(part) for part in parts
        ]
        return StrInterp(nodes, where)

    def _pieces(
        self, opening: int, position: int, limit: int, *, triple: bool
    ) -> tuple[list[str | Expr], int]:
        """Decoded text and holes from `position` to the closing quote, and the end of the string.

        The content of a triple string ends at `limit`; that of another at its first bare quote.
        """
        src = self.src
        text_at = TRIPLE_TEXT if triple else STRING_TEXT
        parts: list[str | Expr] = []
        text: list[str] = []
        height = LEAF_HEIGHT
        while True:
            run = text_at(src, position, limit)
            if run:
                text.append(run[0])
                position = run.end()
            character = src[position] if position < limit else ""
            if character == "\\":
                decoded, position = self._escape(opening, position, limit)
                text.append(decoded)
            elif character == "{":
                if text:
                    parts.append("".join(text))
                    text = []
                closing = self.matching_brace(position, limit)
                if closing < 0:
                    raise self.lesson(diagnostics.HOLE, position, limit)
                parts.append(self._hole(position, closing))
                height = max(height, self.height + HOLE_HEIGHT)
                position = closing + 1
            elif character == "\n":
                raise self.lesson(diagnostics.STRING_NEWLINE, opening, position)
            elif character == '"' or triple:
                break
            else:
                raise ParseError("unterminated string", self.span(opening, self.limit))
        if text:
            parts.append("".join(text))
        self.grow(height)
        return parts, position + 1

    def _escape(self, opening: int, position: int, limit: int) -> tuple[str, int]:
        """Value and end of the escape whose backslash is at `position`."""
        letter = self.src[position + 1 : position + 2] if position + 1 < limit else ""
        if not letter:
            raise ParseError("unterminated string", self.span(opening, self.limit))
        value = simple_escape(letter)
        if value is not None:
            return value, position + 2
        if letter != "u":
            where = self.span(position, position + 2)
            raise ParseError(f"unknown escape `\\{letter}`", where, ESCAPES_HINT)
        found = UNICODE_ESCAPE(self.src, position, limit)
        if not found:
            where = self.span(position, position + 2)
            raise ParseError("invalid \\u{…} escape", where, "write hex digits: `\\u{1F41A}`")
        if not found[2]:
            raise ParseError("unterminated \\u{…}", self.span(position, found.end()))
        return code_point(found[1], position, found.end(), self.span), found.end()

    def matching_brace(self, opening: int, limit: int) -> int:
        """Position of the `}` that matches the `{` at `opening`, or -1.

        Quoted strings in between are skipped whole; what they say is not looked at.
        """
        src = self.src
        depth = 1
        position = opening + 1
        while True:
            skipped = BETWEEN_BRACES(src, position, limit)
            position = skipped.end()  # type: ignore[union-attr]
            character = src[position] if position < limit else ""
            if character == "{":
                depth += 1
            elif character == "}":
                depth -= 1
                if depth == 0:
                    return position
            else:
                return -1
            position += 1

    def string_end(self, position: int) -> int:
        """End of the string whose quote is at `position`, without reading its holes, or -1."""
        src, limit = self.src, self.limit
        quote = src[position]
        triple = quote * 3
        if src.startswith(triple, position, limit):
            closing = src.find(triple, position + 3, limit)
            return closing + 3 if closing >= 0 else -1
        if quote == "'":
            found = RAW_STRING(src, position, limit)
            return found.end() if found else -1
        position += 1
        while True:
            run = STRING_TEXT(src, position, limit)
            if run:
                position = run.end()
            character = src[position] if position < limit else ""
            if character == "\\":
                position += 2
            elif character == "{":
                position = self.matching_brace(position, limit) + 1
                if position == 0:
                    return -1
            else:
                return position + 1 if character == '"' else -1

    def _hole(self, opening: int, closing: int) -> Expr:
        """The expression between two braces of a string. Leaves the current token as it was."""
        self.enter()
        state = self.save()
        self.limit = closing
        self.span = self.source.spans_from(opening + 1)
        self.mode = MODE_PLAIN
        self.seek(opening + 1)
        found = self.statements(EOF)
        height = self.height
        self.restore(state)
        self.levels -= 1
        self.height = height
        where = self.span(opening, closing + 1)
        if len(found) != 1:
            raise ParseError("interpolation must contain one expression", where)
        statement = found[0]
        if not isinstance(statement, ExprStmt):
            raise ParseError("interpolation must be an expression", where)
        return statement.expr

    # --- interpreter blocks ----------------------------------------------------------------------

    def interpreter_block(self) -> Expr:
        """Read NAME{…} or NAME'…' at the current identifier, whose payload is another language."""
        start, tool = self.start, self.text
        quoted = self.src.startswith("'", self.end, self.limit)
        if quoted:
            payload, end = self.raw_string_at(self.end)
        else:
            self.advance()
            opening = self.start
            closing = self.matching_brace(opening, self.limit)
            if closing < 0:
                raise self.lesson(diagnostics.INTERPRETER_BRACES, opening, self.limit)
            payload, end = self.src[opening + 1 : closing].strip(), closing + 1
        self.seek(end)
        self.height = LEAF_HEIGHT
        return LangBlock(tool, payload, self.span(start, end))
