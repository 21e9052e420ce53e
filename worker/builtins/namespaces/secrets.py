"""`secret.get(name)`: the one way to a secret (chapter 31 §6.4, chapter 50 §12.3).

The store belongs to the router. The secrets port of the host answers `read(name)` with the bytes of
a secret or None; a fault of the store it raises as `permission`.

Failure: `arg_error` for anything but one string, `leash_denied` from the authority, `permission`
for a bad name, a session without a store or a faulty store, `not_found` for an unknown name,
`utf8_error` for material that is no text. No message contains material.
"""

from __future__ import annotations

import re
from typing import Final

from worker.builtins.authority import check_secret
from worker.builtins.effects import Operands, Rule
from worker.builtins.namespaces.model import MemberCall, Namespace
from worker.errors import arg_error, not_found, raised
from worker.values.types import Secret

SECRET: Final = Namespace("secret")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+\Z")


@SECRET.function(
    "get",
    usage="secret.get(name) -> secret",
    effects=(Rule("secret_use", Operands.NAME_OR_ALL),),
)
def secret_get(call: MemberCall) -> Secret:
    """A secret by name; shown by nothing, usable in HTTP headers."""
    if call.named or len(call.pos) != 1 or type(call.pos[0]) is not str:
        raise arg_error("secret.get expects one string name")
    name: str = call.pos[0]
    check_secret(call.ev, name)
    if not _NAME.match(name):
        raise raised("permission", "secret name must contain only ASCII letters, digits, _ or -")
    store = call.ev.host.secrets
    if store is None:
        raise raised("permission", "this session has no secret store")
    material: bytes | None = store.read(name)
    if material is None:
        raise not_found(f"secret `{name}` not found")
    try:
        return Secret(name, material.decode())
    except UnicodeDecodeError:
        raise raised("utf8_error", "secret is not valid UTF-8 for environment injection") from None
