"""Every command head, function and namespace that the evaluator itself provides (chapter 31).

`BUILTINS` holds the 37 command heads. Importing the package loads one module per family; each
registers its heads with everything that is known about them.

Failure: none beyond those of the modules.
"""

from __future__ import annotations

from worker.builtins import changing, copying, listing, reading, removing
from worker.builtins.registry import BUILTINS, Builtin

__all__ = ["BUILTINS", "Builtin"]

# The modules are imported for what they register.
_FAMILIES = (changing, copying, listing, reading, removing)
