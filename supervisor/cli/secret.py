"""`shoal secret`: set, list and delete secrets (chapter 81, section 7.11).

Works on the store itself. Nothing prints material.

Failure: exit 1 for a bad name and a store that cannot be read or written.
"""

from __future__ import annotations

import getpass
import os
import sys

from supervisor.cli.call import Call
from supervisor.cli.failure import Exit, Failure
from supervisor.secret_store import SecretStore, SecretStoreError, check_name


def _store(call: Call) -> SecretStore:
    return SecretStore(call.paths.secret_dir)


def set_secret(call: Call) -> int:
    name = call.operands[0]
    try:
        check_name(name)
        _store(call).set(name, _asked() if os.isatty(0) else sys.stdin.buffer.read())
    except (SecretStoreError, OSError) as error:
        raise _failure(error) from error
    return Exit.SUCCESS


def _asked() -> bytes:
    """The value, typed twice on the terminal without being shown."""
    value = getpass.getpass("value: ")
    if getpass.getpass("again: ") != value:
        raise Failure("the values differ")
    return value.encode("utf-8", "surrogateescape")


def list_secrets(call: Call) -> int:
    try:
        names = _store(call).names()
    except (SecretStoreError, OSError) as error:
        raise _failure(error) from error
    if call.out.json:
        call.out.document(names)
    else:
        for name in names:
            call.out.line(name)
    return Exit.SUCCESS


def delete(call: Call) -> int:
    try:
        _store(call).delete(call.operands[0])
    except (SecretStoreError, OSError) as error:
        raise _failure(error) from error
    return Exit.SUCCESS


def _failure(error: Exception) -> Failure:
    text = (error.strerror or "cannot be used") if isinstance(error, OSError) else str(error)
    return Failure(text)
