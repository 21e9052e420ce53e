"""Events, journal, sessions and the kernel command itself, against real kernels."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from contextlib import closing
from pathlib import Path

import pytest
from blake3 import blake3

from journal.records import BeginSubmission, FinishSubmission, UndoRow
from journal.store import Store, StoreConfig
from tests.cli.program import WAIT_S, Program

LIST_COLUMNS = ["OWNER", "NAME", "STATE", "PID", "ATTACHED", "TASKS", "PTYS", "CWD", "SHARED"]
ENTRY_MEMBERS = [
    *("id", "session", "principal", "ts_ns", "dur_ns", "cwd", "src", "ast", "effects", "status"),
    *("ok", "opaque", "outputs", "kind", "parent_id", "ordinal", "owner", "state", "task"),
]


@pytest.fixture
def session(live: Program, request: pytest.FixtureRequest) -> Program:
    """The shared kernel, seen through a session of this test's own."""
    own = Program(live.root)
    own.environ |= {"SHOAL_SESSION": request.node.name[:100], "SHOAL_SOCKET": str(live.socket)}
    return own


# --- events ------------------------------------------------------------------------------------


def test_published_event_is_printed_by_tail(session: Program) -> None:
    ran = session.run("events", "publish", "user.one", '{"a": [1, null, "é"]}')
    assert (ran.code, ran.out) == (0, "user.one 0\n")
    ran = session.run("events", "tail", "user.one", "--limit", "1", "--no-follow")
    assert re.fullmatch(r'0  \d{4}-\d\d-\d\dT\S+  {"a": \[1, null, "é"\]}\n', ran.out)


def test_tail_reads_after_since_and_keeps_the_newest(session: Program) -> None:
    for number in range(4):
        session.run("events", "publish", "user.many", str(number))
    ran = session.run("events", "tail", "user.many", "--since", "0", "--no-follow", "--json")
    assert [json.loads(line)["payload"] for line in ran.out.splitlines()] == [1, 2, 3]
    ran = session.run("events", "tail", "user.many", "--since", "0", "--limit", "2", "--no-follow")
    assert [line.split()[0] for line in ran.out.splitlines()] == ["2", "3"]
    assert session.run("events", "tail", "user.many", "--no-follow").out == ""


def test_tail_follows_and_ctrl_c_ends_it_with_130(session: Program) -> None:
    session.run("events", "publish", "user.live", '"first"')
    with session.started("events", "tail", "user.live", "--limit", "1", "--json") as tail:
        assert tail.stdout is not None
        assert json.loads(tail.stdout.readline())["payload"] == "first"
        session.run("events", "publish", "user.live", '"second"')
        event = json.loads(tail.stdout.readline())
        assert (event["seq"], event["payload"]) == (1, "second")
        tail.send_signal(signal.SIGINT)
        _, err = tail.communicate(timeout=WAIT_S)
    assert (tail.returncode, err) == (130, "")


def test_only_user_channels_may_be_published_to(session: Program) -> None:
    ran = session.run("events", "publish", "journal", "1")
    assert ran.code == 1
    assert "only user.* channels may be published to" in ran.err


def test_text_that_is_no_json_needs_the_string_option(session: Program) -> None:
    assert session.run("events", "publish", "user.text", "not json").code == 1
    assert session.run("events", "publish", "--string", "user.text", "not json").code == 0
    ran = session.run("events", "tail", "user.text", "--limit", "1", "--no-follow", "--json")
    assert json.loads(ran.out)["payload"] == "not json"


def test_channels_are_the_fixed_ones_and_those_of_the_tasks(session: Program) -> None:
    task = session.run("exec", "--background", "1").out.strip()
    names = session.run("events", "channels", "--json").document
    assert names[:4] == ["session.transcript", "journal", "approval", "render"]
    assert names[4:] == [task.replace(":", ".")]


# --- journal -----------------------------------------------------------------------------------


@pytest.fixture
def stored(session: Program) -> Program:
    for source in ("let a = 1", "sh -c 'exit 3'", "'kept text'"):
        session.run("exec", source)
    return session


def mine(program: Program, *words: str) -> list[str]:
    ran = program.run("journal", "--session", program.environ["SHOAL_SESSION"], *words)
    assert (ran.code, ran.err) == (0, "")
    return ran.out.splitlines()


def test_query_is_newest_first_with_ending_and_first_line(stored: Program) -> None:
    me = f"uid:{os.geteuid()}"
    lines = [line.split("  ", 1)[1] for line in mine(stored)]
    assert lines == [
        f"{me}  ok  'kept text'",
        f"{me}  failed  sh -c 'exit 3'",
        f"{me}  ok  let a = 1",
    ]


@pytest.mark.parametrize("where", [(), ("--remote",)])
def test_filters_and_json_are_the_same_beside_the_kernel_and_through_it(
    stored: Program, where: tuple[str, ...]
) -> None:
    assert len(mine(stored, *where, "--status", "failed")) == 1
    assert len(mine(stored, *where, "--head", "let")) == 1
    assert len(mine(stored, *where, "--limit", "2")) == 2
    assert len(mine(stored, *where, "--since", "1h")) == 3
    assert mine(stored, *where, "--until", "1h") == []
    assert mine(stored, *where, "--until", "2020-01-01T00:00:00Z") == []
    assert len(mine(stored, *where, "--kind", "statement")) == 3
    ran = stored.run(
        "journal", *where, "--json", "--session", stored.environ["SHOAL_SESSION"], "--head", "sh"
    )
    [entry] = ran.document
    assert list(entry) == ENTRY_MEMBERS
    assert (entry["ok"], entry["status"], entry["kind"]) == (False, 3, "submission")
    assert entry["cwd"] == str(stored.root)


def test_show_lists_outputs_and_blob_prints_them(stored: Program) -> None:
    number = mine(stored)[0].split()[0]
    ran = stored.run("journal", "show", number)
    line, value, render = ran.out.splitlines()
    assert line.startswith(f"{number}  ")
    found = re.fullmatch(r"    render: 9 bytes, available \[([0-9a-f]{64})\]", render)
    assert found and value.startswith("    value: ")
    assert stored.run("journal", "blob", found[1]).out == "kept text"
    ran = stored.run("journal", "blob", "--offset", "5", "--length", "2", found[1])
    assert ran.out == "te"
    assert stored.run("journal", "show", "--remote", number).out == "\n".join(
        [line, value, render, ""]
    )


def test_unknown_entry_and_hash_exit_1(stored: Program) -> None:
    ran = stored.run("journal", "show", "999999")
    assert (ran.code, ran.err) == (1, "shoal-history: entry 999999 not found\n")
    assert stored.run("journal", "blob", "0" * 64).code == 1
    assert stored.run("journal", "blob", "xyz").code == 1


def test_tail_follows_the_journal(session: Program) -> None:
    session.run("exec", "0")
    with session.started("journal", "tail", "--json") as tail:
        assert tail.stdout is not None
        # Whenever the tail has come so far as to listen, the next submission is seen.
        for _ in range(1000):
            session.run("exec", "let seen = 1")
            if os.get_blocking(tail.stdout.fileno()) and _readable(tail.stdout.fileno()):
                break
        event = json.loads(tail.stdout.readline())
    assert event["channel"] == "journal"
    assert event["payload"]["v"]["head"] == {"$": "str", "v": "let"}


def _readable(descriptor: int) -> bool:
    import select

    return bool(select.select([descriptor], [], [], 0.1)[0])


def test_journal_works_without_a_kernel_and_not_without_a_store(tmp_path: Path) -> None:
    program = Program(tmp_path)
    ran = program.run("journal")
    assert (ran.code, ran.out) == (1, "")
    assert "there is no journal.db" in ran.err
    with program.kernel():
        program.run("exec", "'before'")
    assert program.run("journal").out.endswith("  ok  'before'\n")
    assert program.run("journal", "tail").code == 69


def test_pins_and_collection_without_a_kernel(tmp_path: Path) -> None:
    program = Program(tmp_path)
    with program.kernel():
        program.run("exec", "'kept'")
    [entry] = program.run("journal", "--json").document
    render = next(each["hash"] for each in entry["outputs"] if each["kind"] == "render")
    assert program.run("journal", "pin", render).code == 0
    assert program.run("journal", "pin", render).code == 0
    [row] = [
        each for each in program.run("journal", "pins", "--json").document if each["hash"] == render
    ]
    assert (row["reason"], row["holder"]) == ("manual", f"uid:{os.geteuid()}")

    dry = program.run("journal", "gc", "--budget", "0")
    assert len(dry.out.splitlines()) == 1
    assert dry.document["dry_run"] is True
    assert render not in [each["hash"] for each in dry.document["candidates"]]
    program.run("journal", "unpin", render)
    applied = program.run("journal", "gc", "--budget", "0", "--apply").document
    assert applied["dry_run"] is False
    assert render in [each["hash"] for each in applied["deleted"]]
    assert f"aged out [{render}]" in program.run("journal", "show", str(entry["id"])).out
    assert program.run("journal", "pin", "zz").code == 1
    ran = program.run("journal", "pin")
    assert (ran.code, ran.err.splitlines()[0]) == (2, "shoal-history: pin requires HASH")


def record_overwrite(state: Path, file: Path, before: bytes) -> int:
    """Put an entry into a store that overwrote a file, with the inverse it recorded."""
    now = file.read_bytes()
    fingerprint = {"size": len(now), "modified_ns": None, "hash": blake3(now).hexdigest()}
    inverse = {
        "kind": "restore_bytes",
        "path": str(file),
        "prior_hash": blake3(before).hexdigest(),
        "expected_current": fingerprint,
    }
    with closing(Store.open(StoreConfig(path=state))) as store:
        entry_id = store.reserve_entries(1)
        store.apply(
            BeginSubmission(
                entry_id=entry_id,
                owner="uid:0",
                session="s",
                principal="uid:0",
                ts=1,
                cwd=b"/",
                src="echo x > file",
                ast=b"{}",
                effects=b"[]",
                effect_kinds=(),
            )
        )
        undo = UndoRow(
            entry_id=entry_id,
            op="restore_bytes",
            inverse=json.dumps(inverse).encode(),
            snapshot=before,
        )
        store.apply(
            FinishSubmission(
                entry_id=entry_id,
                owner="uid:0",
                session="s",
                principal="uid:0",
                ended_ns=2,
                dur_ns=1,
                status=0,
                ok=True,
                undo=(undo,),
            )
        )
    return entry_id


def test_undo_restores_what_an_entry_changed_below_the_root(tmp_path: Path) -> None:
    program = Program(tmp_path)
    file = tmp_path / "work" / "file"
    file.parent.mkdir()
    file.write_text("after")
    number = str(record_overwrite(tmp_path / ".local" / "state" / "shoal", file, b"before"))
    outside = program.run("journal", "undo", number, "--root", str(tmp_path / "elsewhere"))
    assert (outside.code, outside.out) == (1, "")
    assert outside.err == f"shoal-history: undo target escapes scope: {file}\n"
    ran = program.run("journal", "undo", number, "--root", str(file.parent), "--json")
    assert [step["status"] for step in ran.document["steps"]] == ["applied"]
    assert ran.document["steps"][0]["inverse"]["kind"] == "restore_bytes"
    assert file.read_text() == "before"
    again = program.run("journal", "undo", number, "--root", str(file.parent))
    assert again.out == f"undid entry {number} (1 steps)\n"
    file.write_text("changed since")
    stale = program.run("journal", "undo", number, "--root", str(file.parent))
    assert stale.code == 1
    assert f"undo target was modified since recording: {file}" in stale.err
    ran = program.run("journal", "undo", number)
    assert (ran.code, ran.err.splitlines()[0]) == (2, "shoal-history: undo requires --root PATH")


# --- sessions ----------------------------------------------------------------------------------


def test_sessions_are_listed_with_a_header_that_can_be_left_out(session: Program) -> None:
    session.run("exec", "1")
    header, *rows = [line.split() for line in session.run("session", "list").out.splitlines()]
    assert header == LIST_COLUMNS
    bare = session.run("session", "list", "--no-header").out.splitlines()
    assert [line.split() for line in bare] == rows
    listed = session.run("session", "list", "--json").document
    assert session.environ["SHOAL_SESSION"] in [row["session"] for row in listed]


def test_closed_session_starts_afresh(session: Program) -> None:
    session.run("exec", "let a = 1")
    name = session.environ["SHOAL_SESSION"]
    assert session.run("session", "close", name).code == 0
    assert session.run("exec", "a").code == 1


# --- the kernel command ------------------------------------------------------------------------


def test_ready_line_mode_and_end_by_signal(tmp_path: Path) -> None:
    program = Program(tmp_path)
    pid_file = tmp_path / "pid"
    with program.kernel("--pid-file", str(pid_file)) as kernel:
        assert program.socket.stat().st_mode & 0o777 == 0o600
        assert program.socket.parent.stat().st_mode & 0o777 == 0o700
        assert pid_file.read_text() == f"{kernel.pid}\n"
    assert kernel.returncode == 0
    assert not program.socket.exists()
    assert not pid_file.exists()


def test_check_says_whether_a_kernel_could_start_and_creates_nothing(tmp_path: Path) -> None:
    program = Program(tmp_path)
    assert program.run("kernel", "--check").code == 0
    ran = program.run("kernel", "--check", "--policy", str(tmp_path / "none.toml"))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("shoal-kernel: cannot read policy ")
    policy = tmp_path / "policy.toml"
    policy.write_text('[principal."agent:a"]\ngrant = 1\n')
    ran = program.run("kernel", "--check", "--policy", str(policy))
    assert ran.code == 0
    assert ran.err == (
        f"shoal-kernel: warning: policy {policy}: "
        'principal "agent:a": unknown key `grant` is ignored\n'
    )
    program.configure("[quotas]\nsessions = 'x'\n")
    ran = program.run("kernel", "--check")
    assert ran.code == 1
    assert "quotas.sessions" in ran.err
    assert not (tmp_path / ".local").exists()
    assert not program.socket.exists()


def test_start_that_fails_is_one_line_and_exit_1(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.socket.parent.mkdir(mode=0o700)
    program.socket.write_text("not a socket")
    ran = program.run("kernel")
    assert ran.code == 1
    assert ran.err == ("shoal-kernel: refusing to remove unowned non-socket path" + ran.err[56:])
    assert len(ran.err.splitlines()) == 1
    assert program.socket.read_text() == "not a socket"


def test_second_kernel_is_refused(tmp_path: Path) -> None:
    program = Program(tmp_path)
    with program.kernel():
        ran = program.run("kernel", "--state-dir", str(tmp_path / "other"))
        assert ran.code == 1
        assert ran.err.startswith("shoal-kernel: kernel already listening")


def test_daemonized_kernel_is_ready_when_the_command_returns(tmp_path: Path) -> None:
    program = Program(tmp_path)
    pid_file = tmp_path / "pid"
    ran = program.run("kernel", "--daemonize", "--pid-file", str(pid_file))
    assert ran.code == 0
    assert f"shoal-kernel: ready {program.socket}\n" in ran.err
    pid = int(pid_file.read_text())
    try:
        assert os.getsid(pid) == pid
        assert program.run("exec", "6 * 7").out == "42\n"
    finally:
        os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + WAIT_S
    while pid_file.exists():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_daemonized_start_that_fails_exits_like_it(tmp_path: Path) -> None:
    program = Program(tmp_path)
    ran = program.run("kernel", "--daemonize", "--policy", str(tmp_path / "none"))
    assert ran.code == 1
    assert ran.err.startswith("shoal-kernel: cannot read policy ")


def test_contradicting_options_are_usage_errors(tmp_path: Path) -> None:
    program = Program(tmp_path)
    for one, other in (
        ("--agent-endpoint", "--no-agent-endpoint"),
        ("--foreground", "--daemonize"),
    ):
        ran = program.run("kernel", one, other)
        assert (ran.code, ran.out) == (2, "")
        assert f"{one} and {other} contradict each other" in ran.err


# --- terminals ---------------------------------------------------------------------------------


def test_program_on_a_terminal_is_typed_to_read_resized_and_closed(session: Program) -> None:
    ran = session.run("pty", "open", "--cols", "40", "--rows", "5", "--env", "A=b", "cat", "-u")
    assert ran.code == 0
    pty = ran.out.strip()
    assert re.fullmatch(r"pty:\d+", pty)
    assert session.run("pty", "send", pty, "hello", "key:enter").code == 0
    end = time.monotonic() + WAIT_S
    while session.run("pty", "read", pty).out.splitlines()[:2] != ["hello", "hello"]:
        assert time.monotonic() < end
    record = session.run("pty", "read", "--json", pty.removeprefix("pty:")).document
    assert (record["cols"], record["rows"], len(record["screen"])) == (40, 5, 5)
    assert session.run("pty", "resize", pty, "50x6").code == 0
    header, row = session.run("pty", "list").out.splitlines()
    assert header.split() == ["PTY", "ALIVE", "PID", "SIZE", "CMD"]
    assert row.split()[:2] == [pty, "yes"]
    assert row.split()[3] == "50x6"
    assert session.run("pty", "close", pty).code == 0
    assert session.run("pty", "list").out == ""
    ran = session.run("pty", "read", pty)
    assert (ran.code, ran.err) == (1, "shoal pty: unknown or closed pty_id\n")


def test_terminal_words_that_cannot_be_are_usage_errors(session: Program) -> None:
    assert session.run("pty", "read", "x").code == 2
    assert session.run("pty", "resize", "1", "50").code == 2
    assert session.run("pty", "open", "--env", "novalue", "cat").code == 2
    assert session.run("pty", "open").code == 2


# --- status ------------------------------------------------------------------------------------


def test_status_shows_kernel_and_sessions(session: Program) -> None:
    session.run("exec", "1")
    document = session.run("status", "--json").document
    assert document["socket"] == session.environ["SHOAL_SOCKET"]
    assert session.environ["SHOAL_SESSION"] in [row["name"] for row in document["sessions"]]
    ran = session.run("status")
    assert ran.code == 0
    assert f"socket:      {session.environ['SHOAL_SOCKET']}\n" in ran.out
    assert f"pid {document['pid']}, serving, up " in ran.out


def test_metrics_are_in_the_text_format(session: Program) -> None:
    ran = session.run("metrics")
    assert ran.code == 0
    assert "# TYPE shoal_requests_total counter\n" in ran.out
    for line in ran.out.splitlines():
        assert line.startswith("#") or re.fullmatch(r"[a-z_]+(\{.*\})? [0-9.e+-]+", line), line


def test_status_never_starts_a_kernel(tmp_path: Path) -> None:
    program = Program(tmp_path)
    del program.environ["SHOAL_NO_AUTOSTART"]
    assert program.run("status").code == 69
    assert not program.socket.exists()
