"""The image that workers are forked from: preloaded by the forkserver, then frozen.

Importing this module loads everything a worker needs, moves all objects out of the garbage
collector's sight, so that collections in the children do not touch (and copy) the shared pages, and
names the process. It stays single-threaded and does nothing else.

Failure: an import error ends the zygote; the router reports it at the first launch.
"""

from __future__ import annotations

import ctypes
import encodings.ascii
import encodings.idna  # noqa: F401 - loaded for the children
import gc
import os
import signal
import sys

import worker.builtins
import worker.builtins.namespaces
import worker.commands.run
import worker.evaluate.channels
import worker.evaluate.compiler
import worker.evaluate.program
import worker.evaluate.streams
import worker.main
import worker.planning.purity
import worker.planning.vocabulary
import worker.sandbox
import worker.session
import worker.syntax
import worker.values.methods  # noqa: F401 - loaded for the children
from worker.commands.adapters import bundled

# Secrets of clients must not be inherited by anything a session starts.
for _name in ("SHOAL_TOKEN", "SHOAL_TOKEN_FILE"):
    os.environ.pop(_name, None)

if sys.platform == "linux":
    import prctl

    prctl.set_name("shoal:zygote")
    prctl.set_pdeathsig(signal.SIGKILL)
    # Give freed memory of the imports back before it is shared by every worker.
    ctypes.CDLL(None).malloc_trim(0)

# Read once here, not once in every session.
bundled()

gc.collect()
gc.freeze()
