"""One adapted call: its command line, its program, its structured result (chapter 41 §A1).

Failure: arguments that do not fit raise before anything is started; a program that cannot start
raises as any; one that ends badly, or prints what was not declared, is an outcome.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from worker.commands.adapters.arguments import choose, command_line
from worker.commands.adapters.parsers import parse
from worker.commands.adapters.schema import INTERPRETER, TERMINAL, Command, Specification
from worker.commands.arguments import Argument, argv_words
from worker.commands.interactive import spawn_on_terminal
from worker.commands.redirect import input_descriptor
from worker.commands.spawn import spawn
from worker.values.types import LazyBytes, Outcome

if TYPE_CHECKING:
    from worker.commands.site import CommandSite
    from worker.evaluate.evaluator import Evaluator


class Adapter:
    """A declared command as the resolution of heads and the planner see it."""

    __slots__ = ("command",)

    def __init__(self, command: Command) -> None:
        self.command = command

    @property
    def bin(self) -> str:
        return self.command.bin

    @property
    def command_class(self) -> str:
        return self.command.command_class

    @property
    def subcommands(self) -> Mapping[str, Specification]:
        return self.command.subcommands

    @property
    def top(self) -> Specification:
        return self.command.top

    def run(
        self, ev: Evaluator, frame: Any, site: CommandSite, items: Sequence[Argument]
    ) -> Outcome:
        """Run the call; `items` are its arguments with globs unexpanded."""
        command = self.command
        if command.command_class == INTERPRETER and not command.top.params:
            # An interpreter that declares nothing is passed what was typed.
            words = argv_words(ev, items)
            specification = command.top
        else:
            words = command_line(ev, command, items)
            specification = choose(command, items)[0]
        accepted = specification.ok_codes
        if accepted is None:
            accepted = command.ok_codes
        outcome = self._spawn(ev, frame, site, [os.fsencode(command.bin), *words], accepted)
        stdout = outcome.stdout
        data = stdout.preview if isinstance(stdout, LazyBytes) else stdout
        outcome.structured = parse(specification.parser, data, specification.hint)
        return outcome

    def _spawn(
        self,
        ev: Evaluator,
        frame: Any,
        site: CommandSite,
        argv: list[bytes],
        accepted: Sequence[int],
    ) -> Outcome:
        from worker.commands.run import prefixed_environment

        env = prefixed_environment(ev, site)
        start = spawn_on_terminal if self.command.command_class == TERMINAL else spawn
        stdin = input_descriptor(ev, frame, site) if site.redirects else None
        try:
            return start(ev, argv, stdin=stdin, env=env, span=site.span, accepted=accepted)
        finally:
            if stdin is not None:
                os.close(stdin)
