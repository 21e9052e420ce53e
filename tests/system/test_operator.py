"""Operator methods, reload and signals (chapter 81 §7.14, §8.2)."""

from __future__ import annotations

import os
import signal

from tests.system.daemon import Daemon, Wire

SECTIONS = {
    "version", "pid", "started_ns", "socket", "state_dir", "ephemeral", "draining", "config",
    "policy", "enforcement", "connections", "sessions", "plans", "tokens", "journal", "quotas",
}  # fmt: skip


def test_status_tells_what_runs(daemon: Daemon, attached: Wire) -> None:
    attached.result("exec", {"src": "1"})
    status = attached.result("kernel.status")
    assert set(status) == SECTIONS
    assert (status["pid"], status["socket"]) == (daemon.pid, str(daemon.socket))
    assert status["state_dir"] == str(daemon.state)
    (session,) = [row for row in status["sessions"] if row["attached"]]
    assert (session["state"], session["transcript"]) == ("ready", 1)
    assert session["rss_bytes"] > 1_000_000
    (connection,) = [row for row in status["connections"] if row["session"] == session["name"]]
    assert connection["endpoint"] == "kernel"
    assert connection["requests"] == 3
    assert status["journal"]["store"] == "ok"
    assert status["journal"]["entries"] >= 2
    assert status["tokens"] == {"store": "ok", "active": 0, "revoked": 0, "expired": 0}


def test_status_with_metrics_has_the_exposition_text(attached: Wire) -> None:
    attached.result("exec", {"src": "1"})
    text = attached.result("kernel.status", {"metrics": True})["metrics"]
    assert "# TYPE shoal_requests_total counter\n" in text
    assert 'shoal_requests_total{endpoint="kernel",method="exec",code="ok"}' in text
    assert "shoal_exec_duration_seconds_bucket" in text


def test_a_reload_takes_the_new_file_or_keeps_the_old() -> None:
    with Daemon(config="[quotas]\nsessions = 5\n") as daemon, daemon.wire() as wire:
        wire.result("session.attach")
        assert wire.result("kernel.status")["quotas"]["sessions"] == 5
        file = daemon.directory / ".config" / "shoal" / "shoal.toml"
        file.write_text("[quotas]\nsessions = 9\n")
        assert wire.result("kernel.reload") == {"reloaded": True, "generation": 2, "error": None}
        assert wire.result("kernel.status")["quotas"]["sessions"] == 9
        file.write_text("[quotas]\nsessions = 'many'\n")
        refused = wire.result("kernel.reload")
        assert (refused["reloaded"], refused["generation"]) == (False, 2)
        assert "quotas.sessions: expected a non-negative integer" in refused["error"]
        assert wire.result("kernel.status")["quotas"]["sessions"] == 9


def test_hangup_reloads_and_never_ends_the_daemon() -> None:
    with Daemon(config="[quotas]\nsessions = 5\n") as daemon, daemon.wire() as wire:
        wire.result("session.attach")
        file = daemon.directory / ".config" / "shoal" / "shoal.toml"
        file.write_text("[quotas]\nsessions = 7\n")
        os.kill(daemon.pid, signal.SIGHUP)
        while wire.result("kernel.status")["config"]["generation"] == 1:
            continue
        assert wire.result("kernel.status")["quotas"]["sessions"] == 7


def test_configuration_warnings_are_listed() -> None:
    with Daemon(config="[quotas]\nsesions = 5\n") as daemon, daemon.wire() as wire:
        wire.result("session.attach")
        (warning,) = wire.result("kernel.status")["config"]["warnings"]
        assert "unknown config key `quotas.sesions`" in warning


def test_an_ephemeral_daemon_ends_with_its_last_client() -> None:
    daemon = Daemon("--ephemeral").start()
    wire = daemon.wire()
    wire.result("session.attach")
    wire.close()
    assert daemon.process is not None
    assert daemon.process.wait(20) == 0
    daemon.stop()
