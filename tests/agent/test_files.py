"""Attachments, uploads, directories, logs (chapter 70 §15, §19)."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.client import Agent
from tests.system.daemon import Daemon

MIB = 1024 * 1024
PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 20


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def attach(agent: Agent, session: str, *files: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = agent.result(
        "file/attach", {"session_id": session, "files": list(files)}
    )["files"]
    return found


def test_content_is_stored_under_its_hash(agent: Agent, session: str) -> None:
    [file] = attach(agent, session, {"data_b64": b64(b"hi"), "filename": "a b/c.txt"})

    path = Path(file["workspace_path"])
    assert path.name == hashlib.sha256(b"hi").hexdigest() + ".txt"
    assert path.read_bytes() == b"hi" and path.stat().st_mode & 0o777 == 0o600
    assert file["ref_id"] == "sha256:" + hashlib.sha256(b"hi").hexdigest()
    assert file["marker"] == f"[Document: a b_c.txt] {path}"
    assert (file["size_bytes"], file["deduplicated"]) == (2, False)


def test_a_repeated_file_is_verified_and_written_again(agent: Agent, session: str) -> None:
    [first] = attach(agent, session, {"data_b64": b64(b"again"), "filename": "one.txt"})
    path = Path(first["workspace_path"])
    path.write_bytes(b"edited")

    [second] = attach(agent, session, {"data_b64": b64(b"again"), "filename": "two.txt"})

    assert second["deduplicated"] is True and second["marker"] == first["marker"]
    assert path.read_bytes() == b"again"
    path.unlink()
    path.symlink_to("/etc/hostname")
    attach(agent, session, {"data_b64": b64(b"again")})
    assert not path.is_symlink() and path.read_bytes() == b"again"


def test_an_image_is_marked_by_its_bytes(agent: Agent, session: str, daemon: Daemon) -> None:
    picture = daemon.directory / "picture.bin"
    picture.write_bytes(PNG)

    by_path, by_data, by_type = attach(
        agent, session,
        {"path": str(picture)}, {"data_b64": b64(PNG + b"y"), "filename": "x.txt"},
        {"data_b64": b64(b"???"), "filename": "x", "mime_type": "image/webp"},
    )  # fmt: skip

    assert by_path["marker"] == f"[IMAGE:{picture}]"
    assert by_data["marker"] == f"[IMAGE:{by_data['workspace_path']}]"
    assert by_type["marker"].startswith("[IMAGE:")


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({}, "Each file entry must have either `data_b64` or `path`"),
        ({"path": "relative"}, "Path must be absolute"),
        ({"path": "/no/such/file"}, "Cannot read file: "),
        ({"path": "/"}, "Cannot read file: not a regular file"),
        ({"path": "/dev/null"}, "Cannot read file: not a regular file"),
        ({"data_b64": "!!!"}, "Invalid base64: "),
        ({"data_b64": "aGk=", "filename": "x" * 256}, "255"),
    ],
)
def test_a_file_that_cannot_be_taken_is_refused(
    agent: Agent, session: str, entry: dict[str, Any], text: str
) -> None:
    error = agent.error("file/attach", {"session_id": session, "files": [entry]})

    assert error["code"] == -32602 and text in error["message"]


def test_sizes_have_limits(agent: Agent, session: str, daemon: Daemon) -> None:
    big, half = daemon.directory / "big", daemon.directory / "half"
    big.write_bytes(b"\0" * (10 * MIB + 1))
    half.write_bytes(b"\0" * (10 * MIB))

    one = agent.error("file/attach", {"session_id": session, "files": [{"path": str(big)}]})
    many = agent.error("file/attach", {"session_id": session, "files": [{"path": str(half)}] * 3})

    assert one["message"] == f"File exceeds 10 MB limit ({10 * MIB + 1} bytes)"
    assert many["message"] == "Total attachment size exceeds 20 MB limit"


def test_uploads_that_are_a_link_are_refused(agent: Agent, daemon: Daemon) -> None:
    place = daemon.directory / "elsewhere"
    place.mkdir()
    workspace = daemon.directory / "linked"
    workspace.mkdir()
    (workspace / "uploads").symlink_to(place)
    agent.result("config/set", {"prop": "agents.linked.workspace.path", "value": str(workspace)})
    agent.result("session/new", {"agent_alias": "linked", "session_id": "linked"})

    error = agent.error("file/attach", {"session_id": "linked", "files": [{"data_b64": b64(b"x")}]})

    assert error["code"] == -32602 and "uploads" in error["message"]
    assert list(place.iterdir()) == []


# --- chunked uploads ------------------------------------------------------------------------------


def begin(agent: Agent, session: str, size: int, **more: Any) -> str:
    made = agent.result("file/upload/begin", {"session_id": session, "size_bytes": size, **more})
    assert (made["chunk_bytes"], made["max_bytes"]) == (MIB, 10 * MIB)
    return str(made["upload_id"])


def chunk(upload: str, offset: int, data: bytes) -> dict[str, Any]:
    return {"upload_id": upload, "offset": offset, "data_b64": b64(data)}


def test_an_upload_in_chunks_is_stored(agent: Agent, session: str) -> None:
    data = os.urandom(2 * MIB + 5)
    upload = begin(agent, session, len(data), filename="u.bin",
                   sha256=hashlib.sha256(data).hexdigest())  # fmt: skip
    for offset in range(0, len(data), MIB):
        piece = data[offset : offset + MIB]
        sent = agent.result("file/upload/chunk", chunk(upload, offset, piece))
        assert sent["received_bytes"] == offset + len(piece)

    file = agent.result("file/upload/commit", {"upload_id": upload})

    assert Path(file["workspace_path"]).read_bytes() == data
    gone = agent.error("file/upload/commit", {"upload_id": upload})
    assert f"Unknown or expired upload `{upload}`" in gone["message"]


def test_chunks_are_checked_against_what_is_held(agent: Agent, session: str) -> None:
    upload = begin(agent, session, 10)
    send = "file/upload/chunk"
    agent.result(send, chunk(upload, 0, b"abcd"))

    assert agent.result(send, chunk(upload, 1, b"bc"))["received_bytes"] == 4
    for bad, text in (
        (chunk(upload, 1, b"XX"), "overlaps received data; the next offset is 4"),
        (chunk(upload, 2, b"cdef"), "overlaps received data; the next offset is 4"),
        (chunk(upload, 5, b"f"), "leaves a gap; the next offset is 4"),
        (chunk(upload, 4, b"0123456"), "declared size"),
        (chunk(upload, 4, b""), "1 to 1048576 bytes"),
        (chunk(upload, 4, b"x" * (MIB + 1)), "1 to 1048576 bytes"),
    ):
        assert text in agent.error(send, bad)["message"]
    early = agent.error("file/upload/commit", {"upload_id": upload})
    assert "Upload has 4 of 10 declared bytes" in early["message"]
    agent.result(send, chunk(upload, 4, b"efghij"))
    agent.result("file/upload/commit", {"upload_id": upload})


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"size_bytes": 10 * MIB + 1}, "10 MB file limit"),
        ({"size_bytes": 1, "filename": "x" * 256}, "255 bytes"),
        ({"size_bytes": 1, "sha256": "ab"}, "64 hexadecimal characters"),
    ],
)
def test_a_wrong_begin_is_refused(
    agent: Agent, session: str, params: dict[str, Any], text: str
) -> None:
    assert text in agent.error("file/upload/begin", {"session_id": session, **params})["message"]


def test_a_connection_has_four_uploads_of_its_own(
    agent: Agent, session: str, connect: Callable[[], Agent]
) -> None:
    uploads = [begin(agent, session, 1) for _ in range(4)]

    error = agent.error("file/upload/begin", {"session_id": session, "size_bytes": 1})

    assert "already has 4 uploads in progress" in error["message"]
    other = connect()
    other.initialize()
    foreign = other.error("file/upload/chunk", chunk(uploads[0], 0, b"x"))
    assert "Unknown or expired upload" in foreign["message"]


def test_a_wrong_hash_discards_the_upload(agent: Agent, session: str) -> None:
    upload = begin(agent, session, 1, sha256="0" * 64)
    agent.result("file/upload/chunk", chunk(upload, 0, b"x"))

    error = agent.error("file/upload/commit", {"upload_id": upload})

    assert "sha256" in error["message"] and "begin again" in error["message"]
    assert "Unknown" in agent.error("file/upload/commit", {"upload_id": upload})["message"]


def test_an_upload_of_a_closed_session_is_refused(agent: Agent, session: str) -> None:
    upload = begin(agent, session, 1)
    agent.result("file/upload/chunk", chunk(upload, 0, b"x"))
    agent.result("session/close", {"session_id": session})
    agent.result("session/new", {"agent_alias": "shell", "session_id": session})

    error = agent.error("file/upload/commit", {"upload_id": upload})

    assert error["code"] == -32000
    assert "closed or replaced before the upload was stored" in error["message"]


def test_an_empty_file_needs_no_chunk(agent: Agent, session: str) -> None:
    file = agent.result("file/upload/commit", {"upload_id": begin(agent, session, 0)})

    assert Path(file["workspace_path"]).read_bytes() == b""


def test_markers_are_part_of_the_prompt(agent: Agent, session: str) -> None:
    answer = agent.prompt(
        session, "attachments.map(p => p.read())", attachments=[{"data_b64": b64(b"inside")}]
    )

    assert "inside" in answer["result"]["content"]
    first = agent.result("session/messages", {"session_id": session})["messages"][0]["content"]
    assert first.startswith("attachments.map(p => p.read())\n[Document: upload] /")


# --- directories and logs -------------------------------------------------------------------------


def test_a_directory_is_listed(agent: Agent, daemon: Daemon) -> None:
    place = daemon.directory / "listing"
    (place / "sub").mkdir(parents=True)
    (place / "B.txt").write_text("xy")
    (place / "a.txt").write_text("x")
    (place / ".hidden").write_text("")

    found = agent.result("fs/list_dir", {"path": str(place)})

    assert [entry["name"] for entry in found["entries"]] == ["sub", "a.txt", "B.txt"]
    assert found["entries"][2]["size"] == 2 and found["cwd"] == str(place)
    all_of_it = agent.result("fs/list_dir", {"path": str(place), "show_hidden": True})
    assert ".hidden" in [entry["name"] for entry in all_of_it["entries"]]


@pytest.mark.parametrize(
    ("path", "code"),
    [("", 4003), ("x", 4003), ("/tmp/../etc", 4003), ("/no/such", 4001), ("/etc/hostname", 4001)],
)
def test_a_path_that_cannot_be_listed(agent: Agent, path: str, code: int) -> None:
    assert agent.error("fs/list_dir", {"path": path})["code"] == code


def test_log_events_are_followed(agent: Agent, connect: Callable[[], Agent]) -> None:
    made = agent.result("logs/subscribe", {})
    connect().initialize()

    event = agent.frame()

    assert event["method"] == "logs/event"
    assert event["params"]["seq"] == made["seq"]
    assert event["params"]["event"]["event"] == "agent.initialize"
    beyond = agent.error("logs/subscribe", {"since_seq": 10**9, "epoch": made["epoch"]})
    assert beyond["code"] == -32602
    cancelled = agent.result("subscription/cancel", {"subscription_id": made["subscription_id"]})
    assert cancelled["cancelled"] is True


def test_a_ninth_log_subscription_is_refused(agent: Agent) -> None:
    for _ in range(8):
        agent.result("logs/subscribe", {})

    assert agent.error("logs/subscribe", {})["message"] == "too many subscriptions"


def test_another_epoch_is_told_as_a_lag(agent: Agent) -> None:
    agent.result("logs/subscribe", {"since_seq": 5, "epoch": "before"})

    lag = next(u for u in iter(agent.frame, None) if u["method"] == "subscription/lagged")

    assert lag["params"]["epoch_changed"] is True
