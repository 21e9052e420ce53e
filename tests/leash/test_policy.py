"""The policy file: every key, alias, form and fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leash.policy import PERMISSIVE, Policy, PolicyError, parse, permissive_for, read

HOME = "/home/io"


def one(text: str) -> Policy:
    policy = parse(f'[principal."p"]\n{text}', HOME).of("p")
    assert policy is not None
    return policy


SPELLINGS = [
    ('fs.read = ["/a"]', "fs_read", ("/a",)),
    ('fs_read = ["/a"]', "fs_read", ("/a",)),
    ('"fs.read" = ["/a"]', "fs_read", ("/a",)),
    ('[principal."p".fs]\nread = ["/a"]', "fs_read", ("/a",)),
    ('fs = { write = ["/a"], delete = ["/b"] }', "fs_delete", ("/b",)),
    ('net = ["h:1"]', "net_connect", ("h:1",)),
    ('net.connect = ["h:1"]', "net_connect", ("h:1",)),
    ('net_connect = ["h:*"]', "net_connect", ("h:*",)),
    ("net.listen = [80, 0]", "net_listen", (80, 0)),
    ('net_listen = ["*"]', "net_listen", ("*",)),
    ('spawn = ["make"]', "proc_spawn", ("make",)),
    ('proc.spawn = ["make"]', "proc_spawn", ("make",)),
    ('env.read = ["A", "*"]', "env_read", ("A", "*")),
    ('env_write = ["A"]', "env_write", ("A",)),
    ('secrets = ["k"]', "secret_use", ("k",)),
    ('secret.use = ["k"]', "secret_use", ("k",)),
    ("session.write = true", "session_write", True),
    ("session_write = true", "session_write", True),
    ("journal.read = true", "journal_read", True),
    ("time = true", "time", True),
    ('auto_apply = "in-grant"', "auto_apply", "in-grant"),
    ('auto_apply = "reversible"', "auto_apply", "reversible"),
    ('opaque = "ask"', "opaque", "ask"),
    ("hermetic = true", "hermetic", True),
    ('approve = ["agent:build*"]', "approve", ("agent:build*",)),
    ('fs.read = ["~/src", "~", "~/src/**"]', "fs_read", (HOME + "/src", HOME, HOME + "/src/**")),
]


@pytest.mark.parametrize(("text", "name", "value"), SPELLINGS)
def test_every_spelling_sets_its_key(text: str, name: str, value: Any) -> None:
    policy = one(text)
    assert getattr(policy, name) == value
    assert name in policy.given


def test_defaults_grant_nothing() -> None:
    policy = one("")
    assert policy == Policy()
    assert (policy.auto_apply, policy.opaque, policy.pinned) == ("never", "deny", False)


FAULTS = [
    ("fs.read = 1", "must be a list of strings"),
    ('fs.read = ["/a", 1]', "must be a list of strings"),
    ("session_write = 1", "must be true or false"),
    ('opaque = "Allow"', "must be one of deny, ask, allow"),
    ('auto_apply = "in_grant"', "must be one of never, in-grant, reversible"),
    ("net_listen = [65536]", "outside 0..65535"),
    ("net_listen = [-1]", "outside 0..65535"),
    ("net_listen = [true]", "list of ports"),
    ('net = ["h:70000"]', "outside 0..65535"),
    ('net = "h:1"', "must be a list of strings"),
    ('fs_read = ["/a"]\nfs.read = ["/b"]', "duplicate"),
    ('spawn = ["a"]\nproc_spawn = ["b"]', "duplicate"),
    ('net = ["h:1"]\nnet_connect = ["h:1"]', "duplicate"),
    ("fs = []", "must be a table"),
]


@pytest.mark.parametrize(("text", "message"), FAULTS)
def test_a_fault_refuses_the_whole_file(text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message) as caught:
        one(text)
    assert '"p"' in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[principal", "not TOML"),
        ("principal = 1", "`principal` must be a table"),
        ("[principal]\np = 1", 'principal "p" must be a table'),
    ],
)
def test_a_file_of_another_form_is_refused(text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        parse(text, HOME)


WARNINGS = [
    ("colour = 1", "unknown key `colour`"),
    ('fs.exec = ["/a"]', "unknown key `fs.exec`"),
    ('fs.read = ["a**"]', "can never match"),
    ('fs.read = ["etc/x"]', "relative path"),
    ('fs.read = [""]', "empty"),
    ('net = ["nohost"]', "no `:`"),
    ('env.read = [""]', "empty"),
    ('approve = ["["]', "bad pattern"),
]


@pytest.mark.parametrize(("text", "message"), WARNINGS)
def test_what_can_never_match_is_warned_about_and_left_out(text: str, message: str) -> None:
    file = parse(f'[principal."p"]\n{text}', HOME)
    (warning,) = file.warnings
    assert message in warning
    assert 'principal "p"' in warning
    policy = file.of("p")
    assert policy is not None
    assert policy.fs_read == policy.net_connect == policy.env_read == policy.approve == ()


def test_a_pinned_list_of_nothing_that_matches_still_pins() -> None:
    assert one('spawn = [""]').pinned


def test_a_file_without_principals_knows_nobody() -> None:
    file = parse("[other]\nx = 1", HOME)
    assert file.policies == {}
    assert file.of("uid:0") is None


def test_the_permissive_policy_is_for_one_principal() -> None:
    file = permissive_for("uid:7")
    assert file.of("uid:7") is PERMISSIVE
    assert file.of("uid:8") is None
    assert PERMISSIVE.permissive
    assert PERMISSIVE.auto_apply == "in-grant"


def test_a_policy_travels_as_json_unchanged() -> None:
    policy = one('fs.read = ["/a"]\nnet_listen = [1, "*"]\nspawn = ["x"]\nopaque = "ask"')
    assert Policy.from_json(policy.as_json()) == policy
    assert Policy.from_json(Policy().as_json()) == Policy()


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"cannot read policy .*leash\.toml"):
        read(tmp_path / "leash.toml")


def test_a_bad_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "leash.toml"
    path.write_text('[principal."p"]\nopaque = 1\n')
    with pytest.raises(PolicyError, match=r"leash\.toml: .*`opaque`"):
        read(path)
