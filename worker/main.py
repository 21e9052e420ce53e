"""Entry points of the worker processes, called after the fork.

A session worker makes itself the reaper of everything it starts, leaves the router's process group,
closes its standard input and output, and serves its session until the control channel ends; then it
kills what it started and exits. A syntax worker serves parse and complete.

Failure: a worker that cannot start exits with status 1 and a traceback on standard error; the
router sees the closed channel.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import traceback
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

from ipc.messages import PROTOCOL, Init, ProtocolError, SetPolicies
from leash.limits import limit_process
from worker.link import Link, LinkClosed

if TYPE_CHECKING:
    from worker.authority import Policies

PROCESS_NAME_BYTES_MAX: Final = 15


def session_worker(title: str, channel: socket.socket, settings: dict[str, int]) -> NoReturn:
    from worker import memory
    from worker.commands.processes import TABLE
    from worker.sandbox import SANDBOX
    from worker.session import Session

    status = 1
    try:
        _become(title, settings)
        # What users' programs create has the user's own permissions.
        os.umask(settings["umask"])
        memory.limit(settings.get("memory_bytes", 0))
        TABLE.adopt()
        link = Link(channel)
        received = link.receive()
        if received is not None:
            init, fds = received
            if not isinstance(init, Init) or init.protocol != PROTOCOL:
                raise ProtocolError("the first message must be init")
            policies = _policies(link)
            SANDBOX.enter(policies.standing(init.owner), dict(init.environment))
            # From here on nothing is done that the owner may not do: stored state is code too.
            Session(link, init, fds, policies, SANDBOX).serve()
        status = 0
    except (LinkClosed, OSError):
        status = 0
    except Exception:  # noqa: BLE001 - the end of the process, whatever the reason
        traceback.print_exc()
    _end(status)


def _policies(link: Link) -> Policies:
    """The second message: what those may do who can act in the session."""
    from worker.authority import Policies

    received = link.receive()
    if received is None or not isinstance(received[0], SetPolicies):
        raise ProtocolError("the second message must be policies")
    policies = Policies()
    policies.update(received[0].entries)
    return policies


def syntax_worker(title: str, channel: socket.socket, settings: dict[str, int]) -> NoReturn:
    from leash.privileges import no_new_privs
    from worker.syntax import serve

    status = 1
    try:
        _become(title, settings)
        no_new_privs()
        serve(Link(channel), settings)
        status = 0
    except (LinkClosed, OSError):
        status = 0
    except Exception:  # noqa: BLE001 - the end of the process, whatever the reason
        traceback.print_exc()
    _end(status)


def model_broker(title: str, channel: socket.socket, settings: dict[str, int]) -> NoReturn:
    from worker.broker import serve

    status = 1
    try:
        _become(title, settings)
        serve(Link(channel))
        status = 0
    except (LinkClosed, OSError):
        status = 0
    except Exception:  # noqa: BLE001 - whatever it was ends the process, with a trace
        traceback.print_exc()
    _end(status)


def _become(title: str, settings: dict[str, int]) -> None:
    """Turn the forked image into a process of its own."""
    _leave_zygote()
    os.setsid()
    os.umask(0o077)
    if sys.platform == "linux":
        import prctl

        prctl.set_child_subreaper(1)
        prctl.set_name(
            title.encode("utf-8", "replace")[:PROCESS_NAME_BYTES_MAX].decode("utf-8", "ignore")
        )
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminated)
    limit_process(settings.get("open_files", 0))
    # The evaluator makes few cycles; rarer collections keep the shared pages shared.
    gc.set_threshold(50_000, 20, 100)


def _leave_zygote() -> None:
    """Give up what the zygote hands to every process it forks: a hold on its life, and the way to
    its resource tracker."""
    from multiprocess import forkserver, resource_tracker

    zygote, tracker = forkserver._forkserver, resource_tracker._resource_tracker
    for holder, name in ((zygote, "_forkserver_alive_fd"), (tracker, "_fd")):
        fd = getattr(holder, name)
        if fd is not None:
            os.close(fd)
            setattr(holder, name, None)


def _terminated(_signal: int, _frame: FrameType | None) -> None:
    _end(0)


def _end(status: int) -> NoReturn:
    """Leave nothing running below this process, then exit without unwinding other threads."""
    from worker.commands.processes import kill_descendants

    try:
        kill_descendants()
    finally:
        sys.stderr.flush()
        os._exit(status)
