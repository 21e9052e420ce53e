"""`shoal kernel`: make the options, check them, serve (chapter 81, section 7.1).

Everything that can be wrong with the start is looked at here or in `daemon.run`; both say it in one
line on stderr.

Failure: Failure with exit 1; UsageError for options that contradict each other.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from ipc.client import InvalidLabel
from supervisor.cli.call import Call
from supervisor.cli.failure import Exit, Failure
from supervisor.cli.options import UsageError
from supervisor.cli.policy_check import check_policy, policies_in_effect
from supervisor.config import ConfigError
from supervisor.kernel_options import KernelOptions, kernel_options

# Options that set a configuration key.
_KEYS: Final[Mapping[str, str]] = {
    "require_token": "kernel.require_token",
    "max_sessions": "quotas.sessions",
    "max_connections": "quotas.connections",
    "idle_exit": "kernel.idle_exit_s",
    "drain_timeout": "kernel.drain_timeout_s",
    "log_level": "logging.level",
    "log_format": "logging.format",
    "log_file": "logging.file",
    "metrics_listen": "metrics.listen",
}


def run(call: Call) -> int:
    for one, other in (("agent_endpoint", "no_agent_endpoint"), ("foreground", "daemonize")):
        if call.flag(one) and call.flag(other):
            names = [f"--{key.replace('_', '-')}" for key in (one, other)]
            raise UsageError(f"{' and '.join(names)} contradict each other")
    if call.flag("check"):
        return _check(call)
    if call.flag("daemonize"):
        # Before anything else is loaded: the child must be able to do everything itself.
        return _daemonize(call)
    return _serve(_options(call))


def _check(call: Call) -> int:
    """Say what a start would say before it binds anything."""
    options = _options(call)
    _, ignored = policies_in_effect(options.paths)
    for warning in (*options.loaded.warnings, *ignored):
        sys.stderr.write(f"shoal-kernel: warning: {warning}\n")
    return Exit.SUCCESS


def _serve(options: KernelOptions) -> int:
    from supervisor import daemon

    return daemon.run(options)


def _options(call: Call, on_ready: Callable[[], None] = lambda: None) -> KernelOptions:
    overrides = {
        key: call.arguments.values[name]
        for name, key in _KEYS.items()
        if name in call.arguments.values
    }
    if call.flag("agent_endpoint") or call.flag("no_agent_endpoint"):
        overrides["agents.enabled"] = call.flag("agent_endpoint")
    try:
        options = kernel_options(
            call.environ,
            config_file=call.text("config"),
            overrides=overrides,
            socket=call.text("socket"),
            session=call.text("session"),
            state=call.text("state_dir"),
            policy=call.text("policy"),
            in_memory=call.flag("in_memory"),
            ephemeral=call.flag("ephemeral"),
            pid_file=call.text("pid_file"),
            on_ready=on_ready,
        )
    except ConfigError as error:
        raise Failure(str(error)) from error
    except InvalidLabel as error:
        raise UsageError(str(error)) from error
    check_policy(options.paths.policy, call.environ)
    return options


def _daemonize(call: Call) -> int:
    """Serve in a detached child; return when it is ready, or with its exit code.

    What the child says until then goes through a file, not through the caller's stderr: processes
    it starts meanwhile keep that descriptor, and a caller that reads to the end of a pipe would
    wait for the last of them.
    """
    ready, report = os.pipe()
    with tempfile.TemporaryFile(buffering=0) as said:
        child = os.fork()
        if child == 0:
            os.close(ready)
            _become_kernel(call, report, said.fileno())
        os.close(report)
        with os.fdopen(ready, "rb") as pipe:
            up = bool(pipe.read(1))
        code = int(Exit.SUCCESS)
        if not up:
            _, status = os.waitpid(child, 0)
            code = max(os.waitstatus_to_exitcode(status), Exit.FAILED)
        said.seek(0)
        sys.stderr.write(said.read().decode(errors="replace"))
    return code


def _become_kernel(call: Call, report: int, said: int) -> NoReturn:
    """The child's life."""
    code = int(Exit.FAILED)
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.dup2(said, 2)
        code = _serve(_options(call, on_ready=lambda: _detach(report, null)))
    except Failure as error:
        sys.stderr.write(f"shoal-kernel: {error}\n")
        code = error.code
    except UsageError as error:
        sys.stderr.write(f"shoal-kernel: {error}\n")
        code = Exit.USAGE
    finally:
        sys.stderr.flush()
        os._exit(code)


def _detach(report: int, null: int) -> None:
    """Fall silent and tell the waiting parent."""
    os.dup2(null, 2)
    with contextlib.suppress(BrokenPipeError):
        os.write(report, b"\n")
    os.close(report)
