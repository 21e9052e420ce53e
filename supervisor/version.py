"""The version of the whole distribution, in its one place.

pyproject.toml reads it at build time, `shoal --version` and `server.info` at run time.

Failure: none.
"""

from typing import Final

VERSION: Final = "0.1.0"
