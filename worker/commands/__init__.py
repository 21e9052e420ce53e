"""Commands: resolving heads, turning values into words, starting programs, reporting outcomes.

Rooms: `site` (the compiled form of one command call), `arguments` (its evaluated arguments),
`binding` (words for typed parameters), `run` (the resolution order), `suggest` (near misses),
`scripts` (`run` and language scripts), `lang_block` (interpreter blocks), `feeding` (`.feed`),
`redirect`; `spawn` (the single place that starts programs) with `lookup`, `gate` and `launch`,
`capture` (pipes, limits, cancellation), `interactive` (a terminal for one command), `outcome`,
`processes` and `proctree` (who belongs to whom).
"""
