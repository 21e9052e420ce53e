"""Every command head, function and namespace that the evaluator itself provides (chapter 31).

`BUILTINS` holds the command heads, `FUNCTIONS` the call forms; namespaces are in
`worker.builtins.namespaces`. Importing the package loads one module per family; each registers what
it provides together with everything that is known about it.

Failure: none beyond those of the modules.
"""

from __future__ import annotations

from worker.builtins import (
    assertions,
    changing,
    copying,
    environment,
    history,
    listing,
    navigation,
    plans,
    programs,
    reading,
    removing,
    tools,
    writing,
)
from worker.builtins.functions import FUNCTIONS, Function
from worker.builtins.registry import BUILTINS, Builtin

__all__ = ["BUILTINS", "FUNCTIONS", "Builtin", "Function"]

# Imported for what they register.
_FAMILIES = (
    assertions,
    changing,
    copying,
    environment,
    history,
    listing,
    navigation,
    plans,
    programs,
    reading,
    removing,
    tools,
    writing,
)
