"""Rounds of a chaos run: clients work, things go wrong, then everything is checked.

A state directory lives through many rounds, so what a round promised must survive every later one;
a new one begins before the small disk is full of what was promised. Equal seeds choose equal faults
in equal order; when exactly they strike depends on the machine.

Failure: `Broken` with everything that was found wrong, the seed and the round.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.chaos import agents, checks
from tests.chaos.agents import AgentLedger, Prompter
from tests.chaos.clients import Client
from tests.chaos.faults import WEIGHTS, Faults
from tests.chaos.ledger import Ledger
from tests.chaos.world import World

SESSIONS: Final = 3
FAULTS: Final = (1, 4)
BETWEEN_S: Final = (0.02, 0.5)
# The files are looked at with the daemon stopped, which takes a while: not after every round.
STOPPED_EVERY: Final = 5
ROUNDS_PER_WORLD: Final = 20


class Broken(AssertionError):
    """A promise was broken."""


@dataclass(frozen=True, slots=True)
class Summary:
    promises: int
    notes: dict[str, int]
    faults: list[str]


def run(
    rounds: int,
    seed: int,
    report: Callable[[str], None] = lambda text: None,
    weights: Mapping[str, int] = WEIGHTS,
) -> Summary:
    """That many rounds, with faults in these proportions. Raises Broken."""
    chance = random.Random(seed)
    promises = 0
    notes: Counter[str] = Counter()
    struck: list[str] = []
    for first in range(1, rounds + 1, ROUNDS_PER_WORLD):
        numbers = range(first, min(first + ROUNDS_PER_WORLD, rounds + 1))
        ledger = Ledger([f"chaos-{number}" for number in range(SESSIONS)])
        turns = AgentLedger()
        with World() as world:
            faults = Faults(world, chance, weights)
            struck += _rounds(numbers, seed, world, ledger, turns, faults, chance, report)
        promises += ledger.promises + len(turns.answered)
        notes.update(ledger.notes)
    return Summary(promises, dict(notes), struck)


def _rounds(
    numbers: range,
    seed: int,
    world: World,
    ledger: Ledger,
    turns: AgentLedger,
    faults: Faults,
    chance: random.Random,
    report: Callable[[str], None],
) -> list[str]:
    """The rounds of one world; what struck it. Raises Broken."""
    struck: list[str] = []
    for number in numbers:
        happened = _round(world, ledger, turns, faults, chance)
        struck += happened
        problems = checks.promises(world, ledger) + checks.history(world, ledger)
        problems += agents.history(world.agent_socket, turns)
        log = world.daemon.read_log()[-4000:]
        if number % STOPPED_EVERY == 0 or number == numbers[-1]:
            problems += _stopped(world)
            world.start_router()
        report(
            f"round {number}: {', '.join(happened)}; {ledger.promises} promises, "
            f"{len(turns.answered)} turns"
        )
        if problems:
            raise Broken(
                f"seed {seed}, round {number}, after {happened}:\n"
                + "\n".join(problems)
                + f"\nlog:\n{log}"
            )
    return struck


def _round(
    world: World, ledger: Ledger, turns: AgentLedger, faults: Faults, chance: random.Random
) -> list[str]:
    prompter = Prompter(world.agent_socket, ledger, turns, chance.randrange(1 << 32))
    clients: list[Client | Prompter] = [
        Client(world.socket, ledger, session, chance.randrange(1 << 32))
        for session in ledger.sessions.values()
    ]
    clients.append(prompter)
    for client in clients:
        client.thread.start()
    happened = []
    for _ in range(chance.randint(*FAULTS)):
        time.sleep(chance.uniform(*BETWEEN_S))
        happened.append(faults.one())
    time.sleep(chance.uniform(*BETWEEN_S))
    for client in clients:
        client.stop.set()
    for client in clients:
        client.thread.join()
    failures = [client.failure for client in clients if client.failure is not None]
    if failures:
        raise Broken("\n".join(failures) + "\n" + world.daemon.read_log()[-4000:])
    return happened


def _stopped(world: World) -> list[str]:
    problems = []
    code = world.stop_router()
    if code != 0:
        problems.append(f"the daemon ended with {code}")
    return problems + checks.left_behind(world) + checks.database(world)
