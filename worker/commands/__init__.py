"""Commands: resolving heads, turning values into words, starting programs, reporting outcomes.

Rooms: `site` (the compiled form of one command call), `arguments` (its evaluated arguments),
`run` (the resolution order), `heads` (what a name is), `scripts` (`run` and language scripts),
`blocks` (interpreter blocks and `.feed`), `redirect`, `lookup` (programs on PATH), `spawn` (the
single place that starts a program), `capture` (its pipes), `processes` (who belongs to whom).
"""
