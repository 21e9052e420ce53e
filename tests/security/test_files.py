"""Escaping the file sandbox, as builtins, as programs, and by everything in between."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.security.attacker import NEIGHBOUR, SHIELDED, Fortress, run
from tests.security.conftest import HUMAN
from tests.system.daemon import Wire, wait_gone

TREASURE = "the-treasure-outside"

# Programs of an attacker, in its own directory; OUT is a file outside with the treasure in it, DIR
# the directory of that file. None may print the treasure or change what is there.
ESCAPES = {
    "open": "print(open(OUT).read())",
    "symlink": "os.symlink(OUT, 'link'); print(open('link').read())",
    "symlinked directory": "os.symlink(DIR, 'dir'); print(open('dir/treasure').read())",
    "hard link": "os.link(OUT, 'hard'); print(open('hard').read())",
    "rename in": "os.rename(OUT, 'moved'); print(open('moved').read())",
    "rename over": "open('mine','w').write('x'); os.rename('mine', OUT)",
    "exchange": "libc.syscall(316, -100, OUT.encode(), -100, b'mine', 2)",
    "relative": "print(open('../../../../../../' + OUT).read())",
    "own root": "print(open('/proc/self/root' + OUT).read())",
    "own cwd": "os.chdir(DIR); print(open('/proc/self/cwd/treasure').read())",
    "directory descriptor": (
        "d = os.open(DIR, os.O_PATH); print(open(os.open('treasure', 0, dir_fd=d)).read())"
    ),
    "path descriptor": "f = os.open(OUT, os.O_PATH); print(open(f'/proc/self/fd/{f}').read())",
    "handle": "print(open_by_handle())",
    "root of the parent": "print(open(f'/proc/{os.getppid()}/root' + OUT).read())",
    "cwd of the parent": "print(open(f'/proc/{os.getppid()}/cwd').read())",
    "descriptors of the parent": (
        "[print(os.readlink(f'/proc/{p}/fd/{f}')) for p in up() for f in "
        "os.listdir(f'/proc/{p}/fd')]"
    ),
    "environment of the router": "print(open(f'/proc/{ROUTER}/environ').read(), TREASURE)",
    "memory of the router": "open(f'/proc/{ROUTER}/mem', 'rb').read(1); print(TREASURE)",
    "overwrite": "open(OUT, 'w').write('gone')",
    "append": "open(OUT, 'a').write('gone')",
    "truncate": "os.truncate(OUT, 0)",
    "remove": "os.remove(OUT)",
    "new file": "open(DIR + '/planted', 'w').write('x')",
    "new directory": "os.mkdir(DIR + '/planted')",
    "new symlink": "os.symlink('/etc', DIR + '/planted')",
    "new fifo": "os.mkfifo(DIR + '/planted')",
    "new socket": "socket.socket(socket.AF_UNIX).bind(DIR + '/planted')",
    "listing": "print(os.listdir(DIR), TREASURE)",
    "chroot": "os.chroot(DIR); print(open('/treasure').read())",
    "mount": "libc.mount(DIR.encode(), b'.', None, 4096, None); print(open('treasure').read())",
    "user namespace": (
        "os.unshare(0x10000000) if hasattr(os, 'unshare') else libc.unshare(0x10000000); "
        "libc.mount(DIR.encode(), b'.', None, 4096, None); print(open('treasure').read())"
    ),
    "swap": "SWAP",
    "child of a child": "subprocess.run(['sh', '-c', f'cat {OUT}'])",
    "orphan": (
        "subprocess.run(['sh', '-c', f'(setsid cat {OUT} > stolen 2>/dev/null &)']); "
        "time.sleep(.3); print(open('stolen').read())"
    ),
    "set-uid program": "subprocess.run(['su', '-c', f'cat {OUT}'], stdin=subprocess.DEVNULL)",
    "io_uring": (
        "assert libc.syscall(425, 1, ctypes.create_string_buffer(120)) < 0 or True; "
        "print(open(OUT).read())"
    ),
    "state directory": "print(open(STATE + '/tokens.json').read(), TREASURE)",
    "journal": "print(open(STATE + '/journal.db', 'rb').read(16), TREASURE)",
    "another home": "print(open(NEXT + '/diary').read())",
    "temporary directory of others": (
        "print([os.listdir('/tmp/' + d) for d in os.listdir('/tmp')], TREASURE)"
    ),
}

PROLOGUE = """
import ctypes, os, socket, subprocess, sys, time, threading
libc = ctypes.CDLL(None, use_errno=True)
OUT, DIR, STATE, NEXT, ROUTER = {out!r}, {dir!r}, {state!r}, {next!r}, {router}
TREASURE = {treasure!r}
def up():
    pid, found = os.getppid(), []
    while pid > 1:
        found.append(pid)
        pid = int(open(f'/proc/{{pid}}/stat').read().rpartition(')')[2].split()[1])
    return found
def open_by_handle():
    handle = ctypes.create_string_buffer(bytes([128, 0, 0, 0]) + bytes(132))
    mount = ctypes.c_int()
    assert libc.name_to_handle_at(-100, OUT.encode(), handle, ctypes.byref(mount), 0) == 0
    fd = libc.open_by_handle_at(os.open('.', os.O_RDONLY), handle, os.O_RDONLY)
    return open(fd).read()
def swap():
    stop = time.time() + 0.5
    def turn():
        while time.time() < stop:
            for target in ('decoy', OUT):
                try:
                    os.symlink(target, 'next'); os.rename('next', 'turning')
                except OSError:
                    pass
    open('decoy', 'w').write('decoy')
    threading.Thread(target=turn).start()
    while time.time() < stop:
        try:
            text = open('turning').read()
            if TREASURE in text:
                return text
        except OSError:
            pass
try:
    {body}
except BaseException as error:
    print(type(error).__name__)
"""


@pytest.fixture
def outside(fortress: Fortress) -> Path:
    """A file outside of everything the attacker may use."""
    directory = fortress.home / "human" / "vault"
    directory.mkdir(exist_ok=True)
    (directory / "treasure").write_text(TREASURE)
    (fortress.home / "neighbour" / "diary").write_text(TREASURE)
    return directory / "treasure"


@pytest.fixture
def attacker(fortress: Fortress, request: pytest.FixtureRequest) -> Wire:
    wire = fortress.attached(SHIELDED, "escape")
    wire.result("exec", {"src": f'cd "{fortress.home}/shielded"'})
    return wire


@pytest.mark.parametrize("way", ESCAPES)
def test_no_program_gets_at_a_file_outside(
    fortress: Fortress, outside: Path, attacker: Wire, way: str
) -> None:
    body = "print(swap())" if way == "swap" else ESCAPES[way]
    source = PROLOGUE.format(
        out=str(outside),
        dir=str(outside.parent),
        state=str(fortress.state),
        next=str(fortress.home / "neighbour"),
        router=fortress.pid,
        treasure=TREASURE,
        body=body,
    )
    place = fortress.home / "shielded"
    for leftover in place.iterdir():
        if leftover.is_symlink() or leftover.is_file():
            leftover.unlink()
    (place / "escape.py").write_text(source)
    (place / "mine").write_text("mine")
    answer = run(attacker, "sh { /usr/bin/python3 escape.py 2>&1 || true }")
    assert "result" in answer, answer
    render = str(answer["result"]["render"])
    assert TREASURE not in render
    # It came as far as the system let it.
    assert "SyntaxError" not in render and "NameError" not in render, render
    assert outside.read_text() == TREASURE
    assert [path.name for path in outside.parent.iterdir()] == ["treasure"]


def test_the_same_program_of_the_local_human_succeeds(fortress: Fortress, outside: Path) -> None:
    wire = fortress.attached(None, "control")
    source = f"import sys; print(open({str(outside)!r}).read())"
    (fortress.home / "human" / "control.py").write_text(source)
    answer = run(wire, f"sh {{ /usr/bin/python3 {fortress.home}/human/control.py }}")
    assert TREASURE in answer["result"]["render"]


BUILTINS = (
    'cat "{out}"',
    'path("{out}").read',
    'path("{out}").lines',
    'path("{out}").read_bytes',
    'path("{out}").exists',
    'ls "{dir}"',
    'glob("{dir}/*")',
    'cp "{out}" stolen',
    'mv "{out}" stolen',
    'rm "{out}"',
    'ln "{out}" stolen',
    'touch "{dir}/planted"',
    'mkdir "{dir}/planted"',
    '"x".save("{out}")',
    '"x".append("{out}")',
    'echo x > "{out}"',
    'echo x >> "{out}"',
    '^cat < "{out}"',
    'source "{out}"',
    'run "{out}"',
    'use "{out}"',
    'stat "{out}"',
    'head "{out}"',
    'tail("{out}")',
    'watch("{dir}")',
    'let p = "{dir}" + "/treasure"\nlet q = path(p)\nq.read',
    'spawn {{ cat "{out}" }}',
    'parallel([() => path("{out}").read])',
    'retry(1, () => path("{out}").read)',
    '[1].map(x => path("{out}").read)',
    'fn f(p) {{ path(p).read }}\nf("{out}")',
    'try {{ cat "{out}" }} catch e {{ path("{out}").read }}',
    '(plan {{ rm "{out}" }})\napply 1',
    'ln -s "{out}" link\ncat link',
    'ln -s "{dir}" way\ncat way/treasure',
    'ln -s "{dir}" way2\necho x > way2/treasure',
    'ln -s "{dir}" way3\nrm way3/treasure',
    'cd "{dir}"\ncat treasure',
)


@pytest.mark.parametrize("src", BUILTINS)
def test_no_builtin_gets_at_a_file_outside(
    fortress: Fortress, outside: Path, attacker: Wire, src: str
) -> None:
    answer = run(attacker, src.format(out=outside, dir=outside.parent))
    assert TREASURE not in str(answer)
    assert outside.read_text() == TREASURE
    assert [path.name for path in outside.parent.iterdir()] == ["treasure"]


def test_what_is_granted_works(fortress: Fortress, attacker: Wire) -> None:
    for src, render in (
        ("echo hello > a.txt", ""),
        ("^cat a.txt", "hello"),
        ("sh { cp a.txt b.txt; cat b.txt; rm b.txt }", "hello"),
        ('sh { echo x > "$TMPDIR/t" && cat "$TMPDIR/t" }', "x"),
        ("sh { : > /dev/null; head -c 1 /dev/zero | wc -c }", "1"),
        ('json.parse("[1, 2]").sum()', "3"),
        ('path("a.txt").read.trim()', "hello"),
        ("(rm a.txt).len()", "1"),
    ):
        answer = run(attacker, src)
        assert "result" in answer, answer
        assert answer["result"]["render"].strip() == render, (src, answer)


def test_the_private_directory_is_gone_after_the_session(fortress: Fortress) -> None:
    wire = fortress.attached(SHIELDED, "brief")
    place = run(wire, "sh { printf %s $TMPDIR }")["result"]["render"].strip()
    assert Path(place).stat().st_mode & 0o777 == 0o700
    sessions = wire.result("session.list")["sessions"]
    pid = next(entry["pid"] for entry in sessions if entry["session"] == "brief")
    wire.result("session.close", {"force": True})
    assert wait_gone([pid]) == []
    # The router removes it when it sees the end.
    other = fortress.attached(None, "after-brief")
    deadline = time.monotonic() + 5
    while Path(place).exists() and time.monotonic() < deadline:
        other.result("session.cwd", {})
    assert not Path(place).exists()


def test_what_the_sessions_of_a_killed_daemon_left_is_swept_away_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with Fortress(HUMAN) as fortress:
        place = run(fortress.attached(SHIELDED, "left"), "sh { printf %s $TMPDIR }")
        left = Path(place["result"]["render"].strip())
        assert left.parent == tmp_path
        sessions = fortress.attached(None, "look").result("session.list")["sessions"]
        pids = [entry["pid"] for entry in sessions]
        fortress.kill()
        assert wait_gone(pids) == []
        assert left.is_dir()

        fortress.start()

        other = fortress.attached(None, "look")
        deadline = time.monotonic() + 5
        while left.exists() and time.monotonic() < deadline:
            other.result("session.cwd", {})
        assert not left.exists()
        assert not (tmp_path / "shoal-trash" / left.name.removeprefix("shoal-")).exists()


def test_sessions_of_different_principals_do_not_share_temporary_files(
    fortress: Fortress,
) -> None:
    first = fortress.attached(SHIELDED, "tmp-one")
    second = fortress.attached(NEIGHBOUR, "tmp-two")
    place = run(first, "sh { echo hidden > $TMPDIR/note; printf %s $TMPDIR }")["result"]["render"]
    answer = run(second, f"sh {{ cat {place.strip()}/note || true }}")
    assert "hidden" not in str(answer)


def test_the_local_human_is_not_confined(fortress: Fortress, outside: Path) -> None:
    wire = fortress.wire()
    attached = wire.result("session.attach", {"session": "free"})
    assert attached["caps_enforced"] is False
    assert attached["caps"]["status"]["enforced"] is False
    assert run(wire, f'^cat "{outside}"')["result"]["render"].strip() == TREASURE
    status = run(wire, "sh { grep NoNewPrivs /proc/self/status }")["result"]["render"]
    assert status.split() == ["NoNewPrivs:0"]


def test_a_confined_program_gains_no_privileges(fortress: Fortress, attacker: Wire) -> None:
    status = run(attacker, "sh { grep NoNewPrivs /proc/self/status }")["result"]["render"]
    assert status.split() == ["NoNewPrivs:1"]
