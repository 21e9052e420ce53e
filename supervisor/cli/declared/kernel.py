"""Commands that run the kernel, and those that ask an operator's questions.

Failure: none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from supervisor.cli.call import JSON_OPTION, LISTING_OPTIONS, STATE_DIR_OPTION, TARGET_OPTIONS
from supervisor.cli.options import Command, Option
from supervisor.cli.readers import one_of, unsigned

KERNEL: Final = Command(
    "kernel",
    "run the kernel in this terminal",
    run="supervisor.cli.kernel:run",
    prefix="shoal-kernel",
    about="""\
Serves the kernel endpoint (and the agent endpoint) until SIGTERM or Ctrl-C; prints one line
`shoal-kernel: ready PATH` on stderr when it can be reached. SIGHUP reloads configuration, policy
and tokens. A kernel is started by itself when `shoal exec` and others find none.""",
    options=(
        Option("--session", "file name of the derived socket, nothing else", value="NAME"),
        Option("--socket", "socket to bind", value="PATH"),
        replace(STATE_DIR_OPTION, help="directory of journal, blobs, tokens and agent data"),
        Option("--policy", "policy; missing or bad is fatal", value="FILE"),
        Option("--config", "user's configuration file", value="FILE"),
        Option("--ephemeral", "end with the last client; keeps nothing without --state-dir"),
        Option("--in-memory", "no durable state"),
        Option("--agent-endpoint", "serve the agent endpoint (the default)"),
        Option("--no-agent-endpoint", "do not serve the agent endpoint"),
        Option("--require-token", "refuse attachment without a token"),
        Option("--max-sessions", "sessions with a worker", value="N", read=unsigned),
        Option("--max-connections", "open connections", value="N", read=unsigned),
        Option(
            "--idle-exit",
            "end after that long without connection and task; 0 never",
            value="SECONDS",
            read=unsigned,
        ),
        Option(
            "--drain-timeout", "time for running work at the end", value="SECONDS", read=unsigned
        ),
        Option(
            "--log-level",
            "error, warn, info or debug",
            value="LEVEL",
            read=one_of("error", "warn", "info", "debug"),
        ),
        Option("--log-format", "text or json", value="FORMAT", read=one_of("text", "json")),
        Option("--log-file", "log destination (default: stderr)", value="FILE"),
        Option("--foreground", "stay in the foreground (the default)"),
        Option("--daemonize", "detach when ready; exits 0 then, else as the kernel did"),
        Option("--pid-file", "file with the process id, while ready", value="FILE"),
        Option("--metrics-listen", "`unix:/path` or `127.0.0.1:PORT`", value="ADDR"),
        Option("--check", "load configuration and policy, bind nothing, exit 0 or 1"),
    ),
)

STATUS: Final = Command(
    "status",
    "what the kernel is doing",
    run="supervisor.cli.status:run",
    about="Needs operator authority, which the user who runs the kernel has.",
    options=(*TARGET_OPTIONS, *LISTING_OPTIONS),
)

METRICS: Final = Command(
    "metrics",
    "print the kernel's metrics in Prometheus' text format",
    run="supervisor.cli.status:metrics",
    options=TARGET_OPTIONS,
)

DOCTOR: Final = Command(
    "doctor",
    "check that everything needed is there",
    run="supervisor.cli.doctor:run",
    about="""\
One line for each check. Exit 0 when all is well, 1 with warnings, 2 with failures.""",
    unknown_option="doctor accepts only --json, --session NAME and --fix, not {}",
    options=(
        JSON_OPTION,
        Option("--session", "session whose socket is looked at", value="NAME"),
        Option("--fix", "make directories, tighten modes, remove a stale socket; say so"),
    ),
)
