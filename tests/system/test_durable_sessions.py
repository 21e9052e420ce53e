"""What a session is after its worker, or the whole daemon, was killed (chapter 60 §10)."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.daemon import Daemon, Wire, wait_gone


@pytest.fixture
def own_daemon() -> Iterator[Daemon]:
    with Daemon() as running:
        yield running


def kill_worker(daemon: Daemon, session: str) -> None:
    with daemon.wire() as wire:
        wire.result("session.attach", {"session": "watcher"})
        rows = wire.result("session.list")["sessions"]
        pid = next(row["pid"] for row in rows if row["session"] == session)
        os.kill(pid, signal.SIGKILL)
        assert wait_gone([pid]) == []
        while next(
            row["state"]
            for row in wire.result("session.list")["sessions"]
            if row["session"] == session
        ) not in ("idle",):
            continue


def kill_daemon(daemon: Daemon, session: str) -> None:
    daemon.kill()
    daemon.start()


END = {"worker": kill_worker, "daemon": kill_daemon}
KILLS = pytest.mark.parametrize("kill", END.values(), ids=END)
Kill = Callable[[Daemon, str], None]


def run(wire: Wire, *sources: str) -> str:
    render = ""
    for source in sources:
        render = wire.result("exec", {"src": source})["render"]
    return render


@KILLS
def test_everything_a_session_has_comes_back(own_daemon: Daemon, kill: Kill) -> None:
    (own_daemon.work / "sub").mkdir()
    with own_daemon.wire() as wire:
        wire.result("session.attach", {"session": "s"})
        run(
            wire,
            "var n = 1",
            "n = n + 1",
            "fn twice(x) { x * n }",
            "alias hi = echo hello",
            "pushd sub",
            'env.KEPT = "yes"',
        )
        counter = "fn c() { var i = 0; {up: () => { i = i + 1; i }, get: () => i} }; let k = c()"
        run(wire, counter, "k.up()", "k.up()")
    kill(own_daemon, "s")
    with own_daemon.wire() as wire:
        attached = wire.result("session.attach", {"session": "s"})
        assert (attached["restored"], attached["lost"]) == (True, [])
        assert attached["cwd"]["display"] == str(own_daemon.work / "sub")
        assert run(wire, "twice(21)") == "42"
        assert run(wire, "k.up()") == "3"
        assert run(wire, "k.get()") == "3"
        assert "hello" in run(wire, "hi")
        assert run(wire, "env.KEPT") == "yes"
        assert run(wire, "dirs().len") == "2"
        assert wire.result("value.get", {"ref": "out:2"})["value"] == {"$": "int", "v": 2}


@KILLS
def test_lost_values_are_named_and_raise_until_assigned(own_daemon: Daemon, kill: Kill) -> None:
    with own_daemon.wire() as wire:
        wire.result("session.attach", {"session": "s"})
        run(wire, "let s = every(1s)", "every(1s)", "let t = spawn { sleep 60s }", "1")
    kill(own_daemon, "s")
    with own_daemon.wire() as wire:
        assert wire.result("session.attach", {"session": "s"})["lost"] == ["out:2", "s", "t"]
        error = wire.error("exec", {"src": "s"})
        assert error["data"]["code"] == "lost_value"
        assert error["message"] == "value of `s` was lost when the session was restored"
        assert error["data"]["hint"]
        error = wire.error("value.get", {"ref": "out:2"})
        assert (error["code"], error["data"]["kind"]) == (-32004, "lost_value")
        run(wire, "let s = 5")
        assert run(wire, "s + 1") == "6"
        assert wire.result("session.attach", {"session": "s"})["lost"] == ["out:2", "t"]


def test_a_new_session_is_not_restored(own_daemon: Daemon) -> None:
    with own_daemon.wire() as wire:
        attached = wire.result("session.attach", {"session": "s"})
        assert "restored" not in attached
        assert "lost" not in attached


def test_what_was_not_acknowledged_is_not_there(own_daemon: Daemon) -> None:
    with own_daemon.wire() as wire:
        wire.result("session.attach", {"session": "s"})
        run(wire, "var n = 1")
        wire.send(b'{"jsonrpc":"2.0","id":9,"method":"exec","params":{"src":"n = 2; sleep 60s"}}\n')
        with own_daemon.wire() as other:
            other.result("session.attach", {"session": "s"})
            while other.result("journal.query", {"limit": 1})[0]["state"] != "running":
                continue
        kill_daemon(own_daemon, "s")
    with own_daemon.wire() as wire:
        wire.result("session.attach", {"session": "s"})
        assert run(wire, "n") == "1"


def test_statements_of_a_killed_submission_are_interrupted(own_daemon: Daemon) -> None:
    with own_daemon.wire() as wire, own_daemon.wire() as other:
        wire.result("session.attach", {"session": "s"})
        other.result("session.attach", {"session": "watcher"})
        wire.send(
            b'{"jsonrpc":"2.0","id":9,"method":"exec",'
            b'"params":{"src":"echo one; sleep 60s; echo never"}}\n'
        )
        query = {"session": "s", "kind": "all"}
        while len(other.result("journal.query", query)) < 3:
            continue
        kill_worker(own_daemon, "s")
        assert wire.json()["error"]["data"]["kind"] == "worker_lost"
        rows = other.result("journal.query", query)
        assert [(row["kind"], row["src"], row["state"], row["ok"]) for row in rows] == [
            ("statement", "sleep 60s", "interrupted", None),
            ("statement", "echo one", "finished", True),
            ("submission", "echo one; sleep 60s; echo never", "interrupted", None),
        ]


def test_many_results_come_back_fast_and_are_read_when_wanted(own_daemon: Daemon) -> None:
    with own_daemon.wire() as wire:
        wire.result("session.attach", {"session": "s"})
        run(wire, '(1..=100000).map(i => "big").join("")')
        for number in range(500):
            run(wire, f"[{number}, {number}]")
    kill_daemon(own_daemon, "s")
    with own_daemon.wire() as wire:
        started = time.monotonic()
        wire.result("session.attach", {"session": "s"})
        assert time.monotonic() - started < 3
        whole = wire.result("value.get", {"ref": "out:1", "format": "raw", "offset": 299_990})
        assert (whole["total"], whole["raw"]) == (300_000, "igbigbigbig"[-10:])
        assert wire.result("value.get", {"ref": "out:400", "format": "render"})["render"]


SPILL = {"SHOAL_CAPTURE_CAP_BYTES": "100000", "SHOAL_CAPTURE_SPILL_CAP_BYTES": "3000000"}


def test_a_large_capture_spills_into_the_store_and_outlives_the_daemon() -> None:
    with Daemon(environ=SPILL) as daemon:
        with daemon.wire() as wire:
            wire.result("session.attach", {"session": "s"})
            run(wire, "let big = (sh -c 'yes 0123456 | head -c 1000000')")
            assert run(wire, "big.stdout.len") == "1000000"
            reference = run(wire, "big.stdout.ref")
            assert reference.startswith("val:blake3:")
            page = wire.result("value.get", {"ref": "out:1", "format": "render"})
            assert page is not None
            run(wire, "big")
            raw = {"path": "stdout", "format": "raw", "offset": 800_000, "length": 8}
            piece = wire.result("value.get", {"ref": "out:4", **raw})
            assert piece["total"] == 1_000_000
            rows = wire.result("journal.query", {"session": "s", "kind": "all"})
            stdout = [o for row in rows for o in row["outputs"] if o["kind"] == "stdout"]
            assert {(o["len"], "val:blake3:" + o["hash"]) for o in stdout} == {
                (1_000_000, reference)
            }
        daemon.kill()
        daemon.start()
        assert list((daemon.state / "spill").iterdir()) == []
        with daemon.wire() as wire:
            wire.result("session.attach", {"session": "s"})
            assert (
                wire.result("value.get", {"ref": "out:4", **raw})["raw_base64"]
                == (piece["raw_base64"])
            )
            assert run(wire, "big.stdout.load().len") == "1000000"
            assert run(wire, f'"{reference}".len()') == "1000000"
            run(wire, "big.stdout.save('copy')")
            assert (daemon.work / "copy").stat().st_size == 1_000_000


def test_content_is_pinned_while_a_value_refers_to_it() -> None:
    config = "version = 1\n[quotas]\ntranscript_values = 1\n"
    with Daemon(config=config, environ=SPILL) as daemon, daemon.wire() as wire:
        wire.result("session.attach", {"session": "s"})
        run(wire, "let big = (sh -c 'yes 0123456 | head -c 500000')")
        assert _pins(daemon, wire) == 1
        run(wire, "sh -c 'yes abc | head -c 400000'; 1")
        assert _pins(daemon, wire) == 1, "the output of a statement alone keeps nothing"
        run(wire, "let big = 1")
        assert _pins(daemon, wire) == 0


def _pins(daemon: Daemon, wire: Wire) -> int:
    # A read of the daemon comes after all it has acknowledged.
    wire.result("journal.query", {"limit": 1})
    with sqlite3.connect(f"file:{daemon.state / 'journal.db'}?mode=ro", uri=True) as database:
        (count,) = database.execute("SELECT count(*) FROM pin WHERE reason = 'value'").fetchone()
    return int(count)


def test_undo_restores_files_across_a_restart(own_daemon: Daemon) -> None:
    file = own_daemon.work / "f.txt"
    file.write_text("first")
    with own_daemon.wire() as wire:
        wire.result("session.attach", {"session": "s"})
        run(wire, '"second".save("f.txt")', "1")
        assert file.read_text() == "second"
    kill_daemon(own_daemon, "s")
    with own_daemon.wire() as wire:
        wire.result("session.attach", {"session": "s"})
        assert run(wire, "undo().undone") == "1"
        assert file.read_text() == "first"
        assert "already-undone: " in run(wire, "undo().actions[0]")


def test_undo_within_one_submission_sees_its_earlier_statements(own_daemon: Daemon) -> None:
    file = own_daemon.work / "f.txt"
    file.write_text("kept")
    with own_daemon.wire() as wire:
        wire.result("session.attach", {"session": "s"})
        run(wire, "rm f.txt; undo")
        assert file.read_text() == "kept"


def test_undo_of_a_submission_stands_for_its_statements(own_daemon: Daemon) -> None:
    for name in ("a", "b"):
        (own_daemon.work / name).write_text(name)
    with own_daemon.wire() as wire:
        wire.result("session.attach", {"session": "s"})
        run(wire, "rm a; rm b")
        (entry,) = wire.result("journal.query", {"session": "s"})
        assert run(wire, f"(undo {entry['id']}).undone") == "2"
        assert sorted(path.name for path in own_daemon.work.iterdir()) == ["a", "b"]


def test_an_inverse_survives_the_kill_of_its_submission(own_daemon: Daemon) -> None:
    file = own_daemon.work / "f.txt"
    file.write_text("kept")
    with own_daemon.wire() as wire, own_daemon.wire() as other:
        wire.result("session.attach", {"session": "s"})
        other.result("session.attach", {"session": "watcher"})
        wire.send(
            b'{"jsonrpc":"2.0","id":9,"method":"exec","params":{"src":"rm f.txt; sleep 60s"}}\n'
        )
        while len(other.result("journal.query", {"session": "s", "kind": "all"})) < 3:
            continue
        kill_worker(own_daemon, "s")
        wire.json()
        assert not file.exists()
        assert run(wire, "undo().undone") == "1"
        assert file.read_text() == "kept"


def test_undo_of_a_task_that_goes_on_after_its_submission(own_daemon: Daemon) -> None:
    file = own_daemon.work / "f.txt"
    file.write_text("kept")
    with own_daemon.wire() as wire:
        wire.result("session.attach", {"session": "s"})
        run(wire, "let t = spawn { sleep 200ms; rm f.txt }", "t.await()")
        assert not file.exists()
        assert run(wire, "undo().undone") == "1"
        assert file.read_text() == "kept"


def test_history_shows_rows_and_the_running_statement(own_daemon: Daemon) -> None:
    with own_daemon.wire() as wire:
        wire.result("session.attach", {"session": "s"})
        run(wire, "echo one", "let x = 2")
        rows = wire.result("exec", {"src": "history()"})["value"]["cols"]
        assert [item["v"] for item in rows["src"]] == ["history()", "let x = 2", "echo one"]
        assert rows["ok"][0] == {"$": "null"}
        heads = wire.result("exec", {"src": "history --head=echo"})
        assert "let x" not in heads["render"]
        assert "echo one" in heads["render"]


def test_a_result_of_a_terminal_client_survives_its_worker(own_daemon: Daemon) -> None:
    with own_daemon.wire() as wire:
        client = {"kind": "repl", "tty": True}
        wire.result("session.attach", {"session": "s", "client": client})
        run(wire, "41")
        kill_worker(own_daemon, "s")
        assert run(wire, "it + 1") == "42"


def test_settings_are_not_applied_again_to_a_restored_session(tmp_path: Path) -> None:
    config = 'version = 1\n[env]\nFROM_CONFIG = "1"\n[aliases]\nhello = "echo hi"\n'
    with Daemon(config=config) as daemon:
        with daemon.wire() as wire:
            wire.result("session.attach", {"session": "s"})
            run(wire, 'env.FROM_CONFIG = "2"')
        kill_daemon(daemon, "s")
        with daemon.wire() as wire:
            wire.result("session.attach", {"session": "s"})
            assert run(wire, "env.FROM_CONFIG") == "2"
            assert "hi" in run(wire, "hello")
