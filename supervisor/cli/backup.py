"""`shoal backup`: archives of a state directory (chapter 81 §7.17, §9.2).

Failure: exit 1 for what is no sound archive, for a directory that is in use or not empty, and for
an archive that lacks blobs which vanished while it was made, or answers that the database does not
take.
"""

from __future__ import annotations

import sys
from pathlib import Path

from journal.backup import Created, create_archive, restore_archive, verify_archive
from journal.errors import StoreError, StoreInUse
from supervisor.cli.call import Call, absolute
from supervisor.cli.failure import Exit, Failure
from supervisor.cli.options import UsageError
from supervisor.version import VERSION

STANDARD_OUTPUT = "-"


def create(call: Call) -> int:
    """Works beside a running kernel."""
    name = call.operands[0]
    secrets = call.paths.secret_dir if call.flag("with_secrets") else None
    blobs = not call.flag("no_blobs")
    directory = call.paths.state_dir
    try:
        if name == STANDARD_OUTPUT:
            out = sys.stdout.buffer
            made = create_archive(directory, out, version=VERSION, blobs=blobs, secrets=secrets)
            out.flush()
            return _ended(call, made)
        target = Path(absolute(name))
        made = create_archive(directory, target, version=VERSION, blobs=blobs, secrets=secrets)
    except (StoreError, OSError) as error:
        raise _failure(error) from error
    if not call.out.json:
        call.out.line(f"{name}: {len(made.members)} files")
    else:
        call.out.document(
            {
                "files": len(made.members),
                "missing": list(made.missing),
                "lacking": made.lacking,
            }
        )
    return _ended(call, made)


def _ended(call: Call, made: Created) -> int:
    for name in made.missing:
        call.out.note(f"missing CAS blob {name}")
    if made.lacking:
        call.out.note(
            "the newest answers are missing: the kernel's database does not take them; "
            "look at `shoal doctor`, and whether the disk is full"
        )
    return Exit.FAILED if made.missing or made.lacking else Exit.SUCCESS


def verify(call: Call) -> int:
    name = call.operands[0]
    try:
        members = verify_archive(Path(absolute(name)))
    except (StoreError, OSError) as error:
        raise _failure(error) from error
    if call.out.json:
        call.out.document({"files": len(members), "ok": True})
    else:
        call.out.line(f"{name}: {len(members)} files, all sound")
    return Exit.SUCCESS


def restore(call: Call) -> int:
    """Never over the state of a running kernel."""
    directory = call.text("into")
    if directory is None:
        raise UsageError("restore requires --into DIR")
    into = Path(absolute(directory))
    try:
        members = restore_archive(
            Path(absolute(call.operands[0])),
            into,
            drop_tokens=call.flag("drop_tokens"),
            force=call.flag("force"),
        )
    except StoreInUse as error:
        raise Failure(str(error)) from error
    except (StoreError, OSError) as error:
        raise _failure(error) from error
    if call.out.json:
        call.out.document({"files": len(members), "into": str(into)})
    else:
        call.out.line(f"{into}: {len(members)} files restored")
    return Exit.SUCCESS


def _failure(error: StoreError | OSError) -> Failure:
    if isinstance(error, OSError) and error.filename is not None:
        return Failure(f"{error.filename}: {error.strerror}")
    return Failure(str(error))
