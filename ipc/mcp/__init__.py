"""The MCP facade: a stdio server that turns tools and resources into kernel methods (chapter 80).

`frames`, `schemas`, `tools`, `text`, `uris` and `reading` are pure; `link` talks to the kernel,
`subscriptions` and `lanes` hold what is under way, `server` reads and writes the standard streams.

Failure: see the modules.
"""
