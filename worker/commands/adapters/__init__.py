"""Adapters: declarations that give a known program typed arguments, a fixed command line, declared
effects and a structured result (chapter 41, part A).

`schema` is one declaration, `catalog` finds and merges them, `arguments` makes the command line,
`parsers` and `hints` make the result, `running` puts these together for one call. The declarations
that come with the project are the files in `pack`.
"""

from worker.commands.adapters.catalog import Catalog, bundled, load_catalog
from worker.commands.adapters.running import Adapter

__all__ = ["Adapter", "Catalog", "bundled", "load_catalog"]
