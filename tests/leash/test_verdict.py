"""Matching and verdicts: the tables of the chapter row by row."""

from __future__ import annotations

from typing import Any

import pytest

from leash.effects import files
from leash.policy import PERMISSIVE, Policy
from leash.verdict import ALLOW, APPROVAL, DENY, Standing, caps_admit, judge, may_approve, may_write
from leash.verdict import spawn_granted as granted

HASH = "5f" * 32


def word(policy: Policy | None, effect: dict[str, Any], caps: tuple[str, ...] = ()) -> str:
    return Standing("p", policy, caps).word(effect)


GRANTS = [
    (Policy(fs_read=("/a/**",)), files("fs_read", ["/a/b"]), ALLOW),
    (Policy(fs_read=("/a/**",)), files("fs_read", ["/a"]), ALLOW),
    (Policy(fs_write=("/a/**",)), files("fs_write", ["/a"]), DENY),
    (Policy(fs_delete=("/a/**",)), files("fs_delete", ["/a"]), DENY),
    (Policy(fs_read=("/a",)), files("fs_read", ["/a", "/b"]), DENY),
    (Policy(fs_read=("/a", "/b")), files("fs_read", ["/a", "/b"]), ALLOW),
    (Policy(), files("fs_read", []), ALLOW),
    (Policy(fs_read=("/A",)), files("fs_read", ["/a"]), DENY),
    (Policy(env_read=("PATH",)), {"kind": "env_read", "names": ["PATH"]}, ALLOW),
    (Policy(env_read=("PATH",)), {"kind": "env_read", "names": ["HOME"]}, DENY),
    (Policy(env_read=("PATH",)), {"kind": "env_read", "names": ["*"]}, DENY),
    (Policy(env_read=("*",)), {"kind": "env_read", "names": ["*"]}, ALLOW),
    (Policy(env_read=("PA*",)), {"kind": "env_read", "names": ["PATH"]}, DENY),
    (Policy(secret_use=("k",)), {"kind": "secret_use", "names": ["k"]}, ALLOW),
    (Policy(net_connect=("h.test:443",)), {"kind": "net_connect", "host": "H.test", "port": 443},
     ALLOW),
    (Policy(net_connect=("h.test:443",)), {"kind": "net_connect", "host": "h.test", "port": 80},
     DENY),
    (Policy(net_connect=("*.x.test:*",)), {"kind": "net_connect", "host": "a.x.test", "port": 1},
     ALLOW),
    (Policy(net_connect=("*.x.test:*",)), {"kind": "net_connect", "host": "x.test", "port": 1},
     DENY),
    (Policy(net_connect=("*.x.test:*",)), {"kind": "net_connect", "host": "*", "port": 443}, DENY),
    (Policy(net_connect=("*:*",)), {"kind": "net_connect", "host": "*", "port": 443}, ALLOW),
    (Policy(net_connect=("::1:80",)), {"kind": "net_connect", "host": "::1", "port": 80}, ALLOW),
    (Policy(net_listen=(80,)), {"kind": "net_listen", "port": 80}, ALLOW),
    (Policy(net_listen=(80,)), {"kind": "net_listen", "port": 81}, DENY),
    (Policy(net_listen=("*",)), {"kind": "net_listen", "port": 81}, ALLOW),
    (Policy(session_write=True), {"kind": "session_write"}, ALLOW),
    (Policy(), {"kind": "session_write"}, DENY),
    (Policy(journal_read=True), {"kind": "journal_read"}, ALLOW),
    (Policy(time=True), {"kind": "time"}, ALLOW),
    (Policy(), {"kind": "opaque"}, DENY),
    (Policy(opaque="ask"), {"kind": "opaque"}, APPROVAL),
    (Policy(opaque="allow"), {"kind": "opaque"}, ALLOW),
    (Policy(opaque="ask"), {"kind": "proc_spawn", "bin_hash": "", "argv0": "git"}, APPROVAL),
    (Policy(opaque="allow"), {"kind": "proc_spawn", "bin_hash": "", "argv0": "git"}, ALLOW),
    (Policy(proc_spawn=("git",)), {"kind": "proc_spawn", "bin_hash": "", "argv0": "git"}, ALLOW),
    (Policy(proc_spawn=("git",), opaque="allow"),
     {"kind": "proc_spawn", "bin_hash": HASH, "argv0": "make"}, DENY),
    (None, files("fs_read", []), DENY),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "effect", "expected"), GRANTS)
def test_one_effect(policy: Policy | None, effect: dict[str, Any], expected: str) -> None:
    assert word(policy, effect) == expected


@pytest.mark.parametrize(
    ("entry", "digest", "argv0", "own", "expected"),
    [
        (HASH, HASH, "x", None, True),
        ("", "", "", None, False),
        ("git", "", "git", None, True),
        ("git", "", "/usr/bin/git", None, True),
        ("/usr/bin/git", "", "/usr/bin/git", None, True),
        ("/usr/bin/git", "", "git", None, False),
        ("git", "", "/work/git", None, False),
        ("git", "", "git", True, False),
        ("git", "", "git", False, True),
        (HASH, HASH, "git", True, True),
        ("/work/git", "", "/work/git", True, True),
    ],
)
def test_a_program_matches_by_hash_name_or_path(
    entry: str, digest: str, argv0: str, own: bool | None, expected: bool
) -> None:
    policy = Policy(proc_spawn=(entry,), fs_write=("/work/**",))
    assert granted(policy, digest, argv0, own) is expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("/work/**", True),
        # Programs are held to the root of a grant, whatever its pattern says.
        ("/work/*.txt", True),
        ("/work/bin/git", True),
        ("/work/bin/git2", False),
        ("/wor/**", False),
        # A pattern without a root still counts where it matches.
        ("**/git", True),
        ("**/hg", False),
        ("link/**", False),
        ("/link/**", True),
    ],
)
def test_what_can_be_written_is_the_whole_tree_of_a_grant(pattern: str, expected: bool) -> None:
    policy = Policy(fs_write=(pattern,))
    resolved = {"/link": "/work"}
    assert may_write(policy, "/work/bin/git", lambda root: resolved.get(root, root)) is expected
    assert may_write(policy, "git") is False


PROGRAMS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "1 + 1": ([], "reversible"),
    "touch": ([files("fs_write", ["/a"])], "reversible"),
    "rm": ([files("fs_delete", ["/a"])], "reversible"),
    "sh": ([{"kind": "opaque"}], "irreversible"),
}
TABLE = [
    ("deny", "never", (APPROVAL, APPROVAL, APPROVAL, DENY)),
    ("ask", "in-grant", (ALLOW, ALLOW, ALLOW, APPROVAL)),
    ("allow", "in-grant", (ALLOW, ALLOW, ALLOW, ALLOW)),
    ("allow", "reversible", (ALLOW, ALLOW, APPROVAL, APPROVAL)),
    ("ask", "never", (APPROVAL, APPROVAL, APPROVAL, APPROVAL)),
]


@pytest.mark.parametrize(("opaque", "auto_apply", "words"), TABLE)
def test_the_verdict_table(opaque: str, auto_apply: str, words: tuple[str, ...]) -> None:
    every = ("/**",)
    policy = Policy(
        opaque=opaque, auto_apply=auto_apply, fs_read=every, fs_write=every, fs_delete=every
    )
    found = tuple(judge(Standing("p", policy), *program).word for program in PROGRAMS.values())
    assert found == words


def test_an_unknown_principal_is_denied_even_computation() -> None:
    judgement = judge(Standing("p", None), [], "reversible")
    assert (judgement.word, judgement.no_policy) == (DENY, True)


def test_a_denial_names_the_denied_effects_alone() -> None:
    policy = Policy(auto_apply="in-grant", fs_read=("/a",))
    effects = [files("fs_read", ["/a"]), files("fs_write", ["/a"]), {"kind": "time"}]
    judgement = judge(Standing("p", policy), effects, "reversible")
    assert judgement.word == DENY
    assert list(judgement.denied) == effects[1:]


@pytest.mark.parametrize(
    ("caps", "kind", "expected"),
    [
        ((), "fs_write", True),
        (("*",), "opaque", True),
        (("fs.*",), "fs_write", True),
        (("fs.*",), "env_read", False),
        (("fs.write",), "fs_write", True),
        (("fs_write",), "fs_write", True),
        (("fs.write",), "fs_read", False),
        (("nonsense",), "fs_read", False),
        (("time", "opaque"), "opaque", True),
    ],
)
def test_caps_only_narrow(caps: tuple[str, ...], kind: str, expected: bool) -> None:
    assert caps_admit(caps, kind) is expected


def test_a_cap_that_is_missing_denies_what_the_policy_grants() -> None:
    assert word(PERMISSIVE, {"kind": "opaque"}, ("fs.*",)) == DENY
    assert word(Policy(), files("fs_read", ["/a"]), ("*",)) == DENY


@pytest.mark.parametrize(
    ("principal", "patterns", "owner", "local", "expected"),
    [
        ("uid:1", (), "agent:a", True, True),
        ("uid:1", (), "uid:1", True, True),
        ("agent:lead", ("agent:build*",), "agent:builder", False, True),
        ("agent:lead", ("agent:build*",), "agent:other", False, False),
        ("agent:lead", ("*",), "agent:lead", False, False),
        ("agent:lead", (), "agent:builder", False, False),
    ],
)
def test_who_may_approve(
    principal: str, patterns: tuple[str, ...], owner: str, local: bool, expected: bool
) -> None:
    standing = Standing(principal, Policy(approve=patterns))
    assert may_approve(standing, owner, local_human=local) is expected
