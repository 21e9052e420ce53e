"""What a running command has in its hands: arguments, environment, output, configuration, kernel.

Failure: `config` raises Failure for a configuration that cannot be used; `connect` raises
NotReachable, RpcError, TokenFileError or UsageError.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ipc.client import Client, InvalidLabel, NoticeHandler, find_token, socket_path
from ipc.client.autostart import answers
from supervisor.cli.failure import Failure
from supervisor.cli.options import Arguments, Option, UsageError
from supervisor.cli.output import Output
from supervisor.cli.readers import one_of
from supervisor.config import Config, ConfigError, Loaded, load
from supervisor.paths import Paths, resolve

TARGET_OPTIONS = (
    Option("--socket", "kernel socket", value="PATH"),
    Option("--session", "session to attach to (default: `default`)", value="NAME"),
    Option("--token-file", "file with a bearer secret, mode 0600", value="FILE"),
    Option("--no-autostart", "fail when no kernel listens"),
)
STATE_DIR_OPTION = Option("--state-dir", "state directory", value="PATH", aliases=("--data-dir",))
JSON_OPTION = Option("--json", "print JSON")
HEADER_OPTION = Option("--no-header", "print tables without their header")
COLOR_OPTION = Option(
    "--color", "auto, always or never", value="WHEN", read=one_of("auto", "always", "never")
)
LISTING_OPTIONS = (JSON_OPTION, HEADER_OPTION, COLOR_OPTION)


def want_color(config: Config, environ: Mapping[str, str], chosen: str | None) -> bool:
    """Whether to colour: an explicit choice, else configuration and `NO_COLOR`."""
    if chosen == "always":
        return True
    if chosen == "never" or "NO_COLOR" in environ:
        return False
    return os.isatty(1) if chosen == "auto" else config.render.color


class Call:
    """One run of one command."""

    def __init__(self, arguments: Arguments, environ: Mapping[str, str]) -> None:
        self.arguments = arguments
        self.environ = environ

    @property
    def operands(self) -> list[str]:
        return self.arguments.operands

    def flag(self, key: str) -> bool:
        return self.arguments.flag(key)

    def text(self, key: str) -> str | None:
        return self.arguments.text(key)

    def number(self, key: str) -> int | None:
        return self.arguments.number(key)

    def many(self, key: str) -> list[str]:
        return self.arguments.many(key)

    @cached_property
    def loaded(self) -> Loaded:
        """The configuration as a client reads it: without the project's layer."""
        try:
            return load(self.environ)
        except ConfigError as error:
            raise Failure(str(error)) from error

    @property
    def config(self) -> Config:
        return self.loaded.config

    @cached_property
    def out(self) -> Output:
        return Output(
            json=self.flag("json"),
            header=not self.flag("no_header"),
            color=want_color(self.config, self.environ, self.text("color")),
        )

    @cached_property
    def paths(self) -> Paths:
        try:
            return resolve(
                self.environ,
                self.config,
                socket=self.text("socket"),
                session=self.session,
                state=self.text("state_dir"),
                policy=self.text("policy"),
            )
        except InvalidLabel as error:
            raise UsageError(str(error), self.arguments.command) from error

    @property
    def session(self) -> str:
        return self.text("session") or self.config.kernel.session

    def connect(
        self,
        *,
        reconnect: bool = False,
        autostart: bool = True,
        on_notice: NoticeHandler | None = None,
    ) -> Client:
        """A connection to the kernel, which is started when needed and allowed."""
        path = self._kernel_socket()
        return Client.connect(
            path,
            autostart=autostart and self.config.kernel.autostart and not self.flag("no_autostart"),
            environ=self.environ,
            reconnect=reconnect,
            # A path that somebody named is theirs to trust.
            check_owner=path.parent == self.paths.runtime_dir,
            on_notice=on_notice,
        )

    def _kernel_socket(self) -> Path:
        """The socket to talk to. A session can have a kernel of its own under its name; otherwise
        it lives in the kernel that all other sessions live in too."""
        named = self.paths.socket
        if self.text("session") is None or named.parent != self.paths.runtime_dir:
            return named
        return (
            named
            if answers(named)
            else socket_path(self.environ, session=self.config.kernel.session)
        )

    def attached(self, client: Client, *, kind: str = "cli", tty: bool = False) -> dict[str, Any]:
        """Attach a connection to the chosen session; the attach result."""
        token = find_token(self.environ, self.text("token_file"))
        return client.attach(self.session, token=token, client={"kind": kind, "tty": tty})


def absolute(path: str | Path) -> str:
    """A path that stays right when the working directory changes."""
    return os.path.abspath(path)
