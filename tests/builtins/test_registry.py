"""What every builtin, function and namespace member says about itself."""

from __future__ import annotations

import pytest

from worker.builtins import BUILTINS, FUNCTIONS
from worker.builtins.effects import EFFECT_KINDS, SCRIPT, STORED_PLAN, Rule, Rules
from worker.builtins.namespaces import NAMESPACES
from worker.builtins.registry import Undo

STRUCTURED = set(
    """cat cp echo env head ln ls mkdir mv rm sleep stat touch which""".split()  # noqa: SIM905
)
SPECIAL = set(
    """
    apply assert cd dirs exit explain history interact j jobs journal jump open plan popd pushd pwd
    quit reef run save source undo
    """.split()  # noqa: SIM905
)

# Effect kinds of every head, in order.
KINDS = {
    "echo": [],
    "sleep": [],
    "ls": ["fs_read"],
    "stat": ["fs_read"],
    "cat": ["fs_read"],
    "head": ["fs_read"],
    "mkdir": ["fs_write"],
    "touch": ["fs_write"],
    "cp": ["fs_read", "fs_write"],
    "mv": ["fs_read", "fs_write", "fs_delete"],
    "rm": ["fs_delete"],
    "ln": ["fs_read", "fs_write"],
    "which": ["env_read"],
    "env": ["env_read"],
    "cd": ["session_write"],
    "pushd": ["session_write"],
    "popd": ["session_write"],
    "j": ["session_write"],
    "jump": ["session_write"],
    "pwd": [],
    "dirs": [],
    "jobs": [],
    "exit": [],
    "quit": [],
    "assert": [],
    "plan": [],
    "explain": [],
    "save": ["fs_write"],
    "source": ["fs_read", "script"],
    "run": ["fs_read", "script", "opaque"],
    "journal": ["journal_read"],
    "history": ["journal_read"],
    "undo": ["journal_read", "opaque"],
    "apply": ["stored_plan"],
    "interact": ["opaque"],
    "open": ["opaque"],
    "reef": ["opaque"],
}


def kinds(rules: Rules) -> list[str]:
    return [rule.kind for rule in rules]


def test_there_are_37_heads_of_which_14_are_structured() -> None:
    assert set(BUILTINS) == STRUCTURED | SPECIAL
    assert len(BUILTINS) == 37
    assert {name for name, entry in BUILTINS.items() if entry.structured} == STRUCTURED | {"reef"}


@pytest.mark.parametrize("name", sorted(STRUCTURED | SPECIAL))
def test_a_head_says_what_it_does_and_how_it_is_written(name: str) -> None:
    entry = BUILTINS[name]
    assert entry.summary.endswith(".")
    assert entry.usage
    assert all(line.split()[0] == name for line in entry.usage)
    assert all("->" in line for line in entry.usage)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_head_declares_its_effects(name: str) -> None:
    assert kinds(BUILTINS[name].effects) == KINDS[name]


def test_every_head_has_an_effect_row_here() -> None:
    assert set(KINDS) == set(BUILTINS)


@pytest.mark.parametrize(
    ("name", "undo"),
    [
        ("cp", Undo.RESTORE_BYTES),
        ("mv", Undo.MOVE),
        ("rm", Undo.TRASH),
        ("save", Undo.RESTORE_BYTES),
    ],
)
def test_heads_that_can_be_undone_say_so(name: str, undo: Undo) -> None:
    assert BUILTINS[name].undo is undo


def test_no_other_head_claims_to_be_undoable() -> None:
    undoable = {name for name, entry in BUILTINS.items() if entry.undo is not Undo.NONE}
    assert undoable == {"cp", "mv", "rm", "save"}


def test_a_symbolic_link_reads_nothing() -> None:
    read, write = BUILTINS["ln"].effects
    assert read.unless_flags == ("s", "symbolic")
    assert write.unless_flags == ()


def test_only_permanent_removal_is_irreversible() -> None:
    (rule,) = BUILTINS["rm"].effects
    assert rule.irreversible_flags == ("permanent",)


def test_an_effect_kind_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="no such effect kind"):
        Rule("fs_look")


def test_functions_and_members_declare_known_effects() -> None:
    rules = [rule for function in FUNCTIONS.values() for rule in function.effects]
    for namespace in NAMESPACES.values():
        rules += [rule for member in namespace.functions.values() for rule in member.effects]
    assert {rule.kind for rule in rules} <= EFFECT_KINDS | {SCRIPT, STORED_PLAN}


def test_the_call_forms_are_complete() -> None:
    wanted = """
    assert channel every glob now open path regex run save tail today watch
    """.split()  # noqa: SIM905
    assert sorted(FUNCTIONS) == wanted
    assert all(function.usage.startswith(name) for name, function in FUNCTIONS.items())
    assert all(function.summary for function in FUNCTIONS.values())


def test_the_namespaces_are_complete() -> None:
    assert sorted(NAMESPACES) == [
        "config",
        "csv",
        "http",
        "json",
        "math",
        "os",
        "secret",
        "toml",
        "yaml",
    ]
    for name, namespace in NAMESPACES.items():
        for member in namespace.functions.values():
            assert member.usage.startswith(f"{name}.{member.name}(")
            assert member.summary.endswith((".", "...")), member.usage
