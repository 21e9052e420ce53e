"""The namespaces `json yaml toml csv math http os config`, and `secret` for its one function.

`secret` is no namespace of the language (chapter 31 §1.1): the evaluator knows only the spelling
`secret.get(...)`, and finds it here under that name.

Failure: none beyond those of the members.
"""

from __future__ import annotations

from typing import Final

from worker.builtins.namespaces.data import CSV, JSON, TOML, YAML
from worker.builtins.namespaces.http import HTTP
from worker.builtins.namespaces.mathematics import MATH
from worker.builtins.namespaces.model import Namespace
from worker.builtins.namespaces.secrets import SECRET
from worker.builtins.namespaces.system import CONFIG, OS

__all__ = ["NAMESPACES", "Namespace"]

NAMESPACES: Final[dict[str, Namespace]] = {
    namespace.name: namespace
    for namespace in (JSON, YAML, TOML, CSV, MATH, HTTP, OS, CONFIG, SECRET)
}
