"""The check at the moment of an effect: lexical and real paths, owners, pinned programs."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import blake3
import msgspec
import pytest

from ipc.messages import PolicyEntry
from leash.effects import files, names
from leash.policy import PERMISSIVE, Policy
from worker.authority import CallAuthority, Policies
from worker.commands.gate import Admission, SpawnRequest
from worker.errors import Raised

AGENT, OWNER = "agent:a", "uid:1"


def policies_of(policies: Mapping[str, Policy]) -> Policies:
    found = Policies()
    found.update(
        PolicyEntry(name, msgspec.json.encode(policy.as_json()))
        for name, policy in policies.items()
    )
    return found


def authority(
    policy: Policy, *, caps: tuple[str, ...] = (), admitted: tuple[dict[str, Any], ...] = ()
) -> CallAuthority:
    return CallAuthority(policies_of({AGENT: policy}), AGENT, caps, AGENT, admitted)


def refused(check: CallAuthority, effect: dict[str, Any]) -> str | None:
    """The message of the refusal, None when the effect passes."""
    try:
        check.check(effect)
    except Raised as error:
        assert error.error.code == "leash_denied"
        return error.error.msg
    return None


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path.resolve()
    (root / "in").mkdir()
    (root / "out").mkdir()
    (root / "out" / "secret").write_text("x")
    (root / "in" / "link").symlink_to(root / "out")
    (root / "alias").symlink_to(root / "in")
    return root


def test_both_names_of_a_file_must_be_granted(tree: Path) -> None:
    check = authority(Policy(fs_read=(f"{tree}/in/**",)))
    assert refused(check, files("fs_read", [f"{tree}/in/a"])) is None
    assert refused(check, files("fs_read", [f"{tree}/out/secret"])) is not None
    assert refused(check, files("fs_read", [f"{tree}/in/link/secret"])) == (
        f"leash: fs_read of {tree}/in/link/secret denied for principal {AGENT}"
    )


def test_a_grant_through_a_link_is_a_grant_of_what_it_names(tree: Path) -> None:
    check = authority(Policy(fs_read=(f"{tree}/alias/**",)))
    assert refused(check, files("fs_read", [f"{tree}/alias/new"])) is None
    assert refused(check, files("fs_read", [f"{tree}/in/new"])) is None
    assert refused(check, files("fs_read", [f"{tree}/alias/link/secret"])) is not None


def test_the_policy_of_now_decides() -> None:
    policies = policies_of({AGENT: Policy(env_read=("A",))})
    check = CallAuthority(policies, AGENT, (), AGENT)
    effect = names("env_read", ["A"])
    assert refused(check, effect) is None
    policies.update([PolicyEntry(AGENT, b"", "ask somebody")])
    assert refused(check, effect) is not None
    assert policies.hint(AGENT) == "ask somebody"


def test_a_guest_needs_the_owners_grants_as_well() -> None:
    policies = policies_of({AGENT: Policy(env_read=("A",)), OWNER: PERMISSIVE})
    guest = CallAuthority(policies, OWNER, (), AGENT)
    assert refused(guest, names("env_read", ["A"])) is None
    assert refused(guest, names("env_read", ["B"])) == (
        f"leash: env_read of B denied for principal {AGENT}"
    )


def test_caps_narrow_at_the_moment_of_the_effect() -> None:
    check = authority(PERMISSIVE, caps=("fs.read",))
    assert refused(check, files("fs_read", ["/a"])) is None
    assert refused(check, files("fs_write", ["/a"])) is not None


@pytest.mark.parametrize("admitted", [(), ({"kind": "opaque"},)])
def test_what_needs_approval_passes_only_when_it_was_admitted(
    admitted: tuple[dict[str, Any], ...],
) -> None:
    check = authority(Policy(opaque="ask"), admitted=admitted)
    assert (refused(check, {"kind": "opaque"}) is None) is bool(admitted)


# --- programs ------------------------------------------------------------------------------------


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path.resolve() / "tool"
    file.write_text("#!/bin/sh\necho hi\n")
    file.chmod(0o755)
    return file


def spawn(check: CallAuthority, program: Path, argv0: str | None = None, **env: str) -> Any:
    environment = {name.encode(): value.encode() for name, value in env.items()}
    request = SpawnRequest(
        argv0=argv0 or str(program),
        path=str(program),
        content_hash=None,
        argv=[os.fsencode(program)],
        env=environment,
        cwd="/",
        span=None,
    )
    return check.admit_spawn(request)


def code_of(check: CallAuthority, program: Path, argv0: str | None = None) -> str:
    with pytest.raises(Raised) as caught:
        spawn(check, program, argv0)
    return caught.value.error.code


@pytest.mark.parametrize(
    ("opaque", "admitted", "code"),
    [
        ("allow", (), None),
        ("ask", (), "leash_denied"),
        ("ask", ({"kind": "opaque"},), None),
        ("ask", ({"kind": "proc_spawn", "bin_hash": "", "argv0": "tool"},), None),
        ("ask", ({"kind": "proc_spawn", "bin_hash": "", "argv0": "other"},), "leash_denied"),
        ("deny", ({"kind": "opaque"},), "leash_denied"),
    ],
)
def test_without_a_list_a_program_is_judged_like_opaque_work(
    program: Path, opaque: str, admitted: tuple[dict[str, Any], ...], code: str | None
) -> None:
    check = authority(Policy(opaque=opaque), admitted=admitted)
    if code is None:
        assert spawn(check, program, "tool") is None
    else:
        assert code_of(check, program, "tool") == code


def test_a_pinned_program_is_executed_through_what_was_hashed(program: Path) -> None:
    digest = blake3.blake3(program.read_bytes()).hexdigest()
    admission = spawn(authority(Policy(proc_spawn=(digest,))), program, LD_PRELOAD="x", A="1")
    assert isinstance(admission, Admission)
    (fd,) = admission.close_fds
    try:
        assert admission.program == f"/dev/fd/{fd}"
        assert os.path.samestat(os.fstat(fd), program.stat())
        assert dict(admission.env) == {b"A": b"1"}
    finally:
        os.close(fd)


def test_a_program_that_is_not_listed_is_denied_with_its_name(program: Path) -> None:
    check = authority(Policy(proc_spawn=("make",), opaque="allow"))
    with pytest.raises(Raised) as caught:
        spawn(check, program)
    assert caught.value.error.code == "spawn_denied"
    assert caught.value.error.msg == (
        f"leash: spawn of `{program}` denied — its content hash/name is not in principal "
        f"`{AGENT}`'s proc_spawn allowlist"
    )


def test_a_name_does_not_admit_a_file_the_principal_could_write(program: Path) -> None:
    own = Policy(proc_spawn=("tool",), fs_write=(f"{program.parent}/**",))
    assert code_of(authority(own), program, "tool") == "spawn_denied"
    listed = authority(Policy(proc_spawn=("tool",)))
    admission = spawn(listed, program, "tool")
    os.close(admission.close_fds[0])


def test_a_loader_variable_that_is_granted_by_name_stays(program: Path) -> None:
    check = authority(Policy(proc_spawn=("tool",), env_write=("LD_LIBRARY_PATH",)))
    admission = spawn(check, program, "tool", LD_LIBRARY_PATH="/x", LD_PRELOAD="/y")
    os.close(admission.close_fds[0])
    assert dict(admission.env) == {b"LD_LIBRARY_PATH": b"/x"}


@pytest.mark.skipif(os.geteuid() == 0, reason="everything can be read by root")
def test_a_program_that_cannot_be_read_matches_by_name_only(program: Path) -> None:
    program.chmod(stat.S_IXUSR)
    admission = spawn(authority(Policy(proc_spawn=("tool",))), program, "tool")
    assert admission.program == str(program)
