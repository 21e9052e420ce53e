"""`python -m shoal`: the same program as the `shoal` command.

This file is also what a client starts a kernel with: run by its path, it finds the packages that
lie beside it, whatever the working directory and PATH of the caller are.

Failure: none of its own; the exit code is that of the command line.
"""

import os
import sys


def _drop_working_directory() -> None:
    """Forget the entry that `python -m` puts in front of the module path.

    It is the working directory. A user's folder called `journal` or `worker` there would otherwise
    be imported instead of ours.
    """
    home = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.abspath(sys.path[0]) == os.getcwd() != home:
        del sys.path[0]


if __name__ == "__main__":
    _drop_working_directory()

    from supervisor.cli.main import main

    sys.exit(main())
