"""What grants ask the system to hold, and what is said of it (chapter 50 §9)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from leash import landlock
from leash.confinement import Confinement, Ports, confinement
from leash.limits import CgroupTree, GroupLimits
from leash.policy import PERMISSIVE, parse
from leash.seatbelt import SeatbeltError, install, profile
from leash.status import NOT_APPLIED, Backend, caps_enforced, shortfall, status
from leash.verdict import Standing

LANDLOCK = Backend("A", 7)


def _confined(text: str, *caps: str) -> Confinement:
    policy = parse(f'[principal."p"]\n{text}', "/home/p").of("p")
    return confinement(Standing("p", policy, caps))


@pytest.mark.parametrize(
    ("text", "filesystem", "connect", "listen"),
    [
        ("", False, False, False),
        ('opaque = "allow"', False, False, False),
        ("fs.read = []", True, True, True),
        ('fs.read = ["/usr/**"]', True, True, True),
        ('fs.read = ["/**"]\nfs.write = ["/**"]\nfs.delete = ["/**"]', False, False, False),
        ('fs.read = ["/**"]\nfs.write = ["/**"]', True, True, True),
        ("net = []", False, True, True),
        ('net = ["*:*"]', False, False, True),
        ('net = ["*:*"]\nnet_listen = ["*"]', False, False, False),
        ("hermetic = true", True, True, True),
    ],
)
def test_a_dimension_is_confined_when_its_keys_say_so(
    text: str, filesystem: bool, connect: bool, listen: bool
) -> None:
    found = _confined(text)
    assert (found.filesystem, found.connect.requested, found.listen.requested) == (
        filesystem,
        connect,
        listen,
    )
    assert found.any is (filesystem or connect or listen)


def test_the_local_human_without_a_policy_is_not_confined() -> None:
    assert not confinement(Standing("uid:0", PERMISSIVE)).any


def test_caps_narrow_the_confinement() -> None:
    found = confinement(Standing("uid:0", PERMISSIVE, ("fs.read",)))
    assert (found.filesystem, found.read, found.write) == (True, ("/",), ())
    assert found.connect.held == ()


def test_roots_are_what_is_concrete_and_exists(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    found = _confined(
        f'fs.read = ["{tmp_path}/b/**", "{tmp_path}/a/*.txt", "{tmp_path}/gone", "**/x", '
        f'"{tmp_path}/a"]'
    )
    assert found.read == (f"{tmp_path}/a", f"{tmp_path}/b")


def test_ports_are_held_unless_one_grant_is_for_any() -> None:
    assert _confined('net = ["a:443", "b:80", "c:443"]').connect.held == (80, 443)
    assert _confined('net = ["a:443", "b:*"]').connect.held is None
    assert _confined("net_listen = [8080, 0]").listen.held == (0, 8080)


# -- status ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "enforced", "caps"),
    [
        (Backend("A", 7), {"filesystem", "network_connect", "network_listen", "ipc_scope"}, True),
        (Backend("A", 5), {"filesystem", "network_connect", "network_listen"}, True),
        (Backend("A", 3), {"filesystem"}, True),
        (Backend("B"), set(), False),
        (Backend("C"), {"filesystem", "network_connect", "network_listen"}, True),
        (Backend("D"), set(), False),
    ],
)
def test_every_dimension_speaks_for_itself(
    backend: Backend, enforced: set[str], caps: bool
) -> None:
    confined = _confined('fs.read = ["/usr/**"]\nnet = ["a:1"]')
    found = status(confined, backend)
    names = ("filesystem", "network_connect", "network_listen", "ipc_scope")
    assert {name for name in names if found["dimensions"][name]["enforced"]} == enforced
    assert caps_enforced(confined, backend) is caps
    assert (NOT_APPLIED in found["detail"]) is (not caps)
    for dimension in found["dimensions"].values():
        assert (dimension["mode"] == "none") is (not dimension["enforced"])
        assert dimension["enforced"] <= dimension["requested"]


def test_where_no_thread_is_confined_checks_hold_the_evaluator() -> None:
    pinned = status(_confined('proc_spawn = ["git"]'), LANDLOCK)["dimensions"]["evaluator"]
    assert pinned == {"requested": True, "enforced": True, "mode": "checks"}
    free = status(Confinement(), LANDLOCK)["dimensions"]["evaluator"]
    assert free == {"requested": False, "enforced": False, "mode": "none"}


def test_any_port_is_reported_as_not_enforced() -> None:
    found = status(_confined('net = ["b:*"]\nnet_listen = ["*"]'), LANDLOCK)
    connect = found["dimensions"]["network_connect"]
    assert (connect["requested"], connect["enforced"], connect["ports"]) == (True, False, "any")
    assert found["network_enforced"] is False
    assert caps_enforced(_confined('net = ["b:*"]\nnet_listen = ["*"]'), LANDLOCK) is False


@pytest.mark.parametrize(
    ("tier", "word"),
    [("A", "unavailable"), ("B", "unavailable"), ("C", "not installed"), ("D", "advisory")],
)
def test_without_confinement_the_detail_says_what_the_host_lacks(tier: str, word: str) -> None:
    found = status(Confinement(), Backend(tier))
    assert word in found["detail"]
    assert (found["enforced"], found["active_tier"]) == (False, None)


def test_hermetic_names_what_is_missing() -> None:
    confined = _confined('hermetic = true\nfs.read = ["/usr/**"]')
    assert shortfall(confined, LANDLOCK) is None
    assert shortfall(confined, Backend("A", 3)) == "network_connect, network_listen not enforced"
    assert "filesystem" in str(shortfall(confined, Backend("B")))


# -- Seatbelt -------------------------------------------------------------------------------------


def test_a_profile_lists_sorted_roots_and_ports(tmp_path: Path) -> None:
    odd = tmp_path / 'a "quoted" \\ name'
    odd.mkdir()
    text = profile(
        Confinement(
            filesystem=True,
            read=(str(odd),),
            write=(str(tmp_path),),
            delete=(str(tmp_path),),
            connect=Ports(True, False, (80, 443)),
            listen=Ports(True, False, (8080,)),
        )
    )
    lines = text.splitlines()
    assert lines[:2] == ["(version 1)", "(deny default)"]
    real = os.path.realpath(tmp_path)
    escaped = os.path.realpath(odd).replace("\\", "\\\\").replace('"', '\\"')
    assert f'(allow file-read* (subpath "{escaped}"))' in lines
    assert f'(allow file-read* file-write* (subpath "{real}"))' in lines
    assert f'(allow file-read-metadata file-write-unlink (subpath "{real}"))' in lines
    assert '(allow network-outbound (remote tcp "*:443"))' in lines
    assert '(allow network-bind (local tcp "*:8080"))' in lines
    assert "(allow network*)" not in lines
    reads = [line for line in lines if line.startswith("(allow file-read* (")]
    assert reads == sorted(set(reads))


def test_an_unconfined_network_is_open_in_the_profile() -> None:
    assert "(allow network*)" in profile(Confinement(filesystem=True)).splitlines()


@pytest.mark.parametrize("root", ["/a\nb", "/a\x7f", "/\udcff"])
def test_a_root_that_cannot_be_written_is_refused(root: str) -> None:
    with pytest.raises(SeatbeltError):
        profile(Confinement(filesystem=True, read=(root,)))


@pytest.mark.skipif(os.uname().sysname == "Darwin", reason="the backend exists here")
def test_the_profile_is_installed_on_macos_only() -> None:
    with pytest.raises(SeatbeltError, match="only available on macOS"):
        install(profile(Confinement()))


# -- control groups -------------------------------------------------------------------------------


def _tree(root: Path, controllers: str) -> None:
    (root / "cgroup.controllers").write_text(controllers)
    (root / "cgroup.subtree_control").write_text("")


def test_a_worker_gets_a_group_with_its_limits(tmp_path: Path) -> None:
    _tree(tmp_path, "cpu io memory pids")
    tree = CgroupTree.open(tmp_path)
    assert tree is not None
    assert tree.controllers == {"cpu", "memory", "pids"}
    assert (tmp_path / "router" / "cgroup.procs").read_text() == str(os.getpid())
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    group = tree.enter(77, GroupLimits(memory_bytes=1 << 30, pids=100))
    found: dict[str, Any] = {path.name: path.read_text() for path in group.iterdir()}
    assert found == {
        "memory.max": str(1 << 30),
        "pids.max": "100",
        "cpu.weight": "100",
        "cgroup.procs": "77",
    }


def test_nothing_is_limited_where_nothing_is_delegated(tmp_path: Path) -> None:
    _tree(tmp_path, "io")
    assert CgroupTree.open(tmp_path) is None
    assert CgroupTree.open(tmp_path / "missing") is None


def test_a_base_keeps_what_no_wider_directory_of_it_holds(tmp_path: Path) -> None:
    for name in ("a/b", "c", "ab"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    wide, narrow = landlock.GRANT_READ, landlock.BASE_READ
    base = [
        (f"{tmp_path}/a", wide),
        (f"{tmp_path}/a/b", narrow),
        (f"{tmp_path}/link", wide),
        (f"{tmp_path}/a/b", landlock.GRANT_DELETE),
        (f"{tmp_path}/c", narrow),
        (f"{tmp_path}/ab", narrow),
        (f"{tmp_path}/none", wide),
        (f"{tmp_path}/file", wide),
    ]
    file = (f"{tmp_path}/file", landlock.EXECUTE | landlock.READ_FILE)
    assert landlock.distinct(base) == (base[0], base[3], base[4], base[5], file)
