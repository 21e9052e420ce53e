"""Backup archives (chapter 81 §9.2)."""

from __future__ import annotations

import io
import json
import os
import stat
import tarfile
import threading
from pathlib import Path

import pytest
from blake3 import blake3

from journal import EVERYTHING, EntryFilter, Output, QueryEntries, ReadBlob, Store, StoreInUse
from journal.backup import ArchiveError, create_archive, restore_archive, verify_archive
from tests.journal.support import blob_file, open_store, run


def filled(store: Store, state: Path) -> list[bytes]:
    hashes = [
        run(store, outputs=(Output("value", b"content %d" % number),))[1].output_hashes[0]
        for number in range(5)
    ]
    (state / "tokens.json").write_bytes(b'{"tokens":[]}')
    (state / "config.toml").write_bytes(b"[agents]\n")
    workspace = state / "agents" / "fmt" / "workspace" / "uploads"
    workspace.mkdir(parents=True)
    (workspace / "a.txt").write_bytes(b"uploaded")
    (state / "log").mkdir()
    (state / "log" / "shoal.log").write_bytes(b"not for backups")
    return hashes


@pytest.fixture
def archive(store: Store, state: Path, tmp_path: Path) -> Path:
    filled(store, state)
    path = tmp_path / "backup.tar"
    created = create_archive(state, path, version="1.2.3")
    assert created.missing == ()
    return path


def test_archive_begins_with_a_manifest_of_everything_else(archive: Path) -> None:
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    with tarfile.open(archive) as tar:
        names = tar.getnames()
        assert names[0] == "manifest.json"
        file = tar.extractfile("manifest.json")
        assert file is not None
        manifest = json.load(file)
        assert (manifest["format"], manifest["version"], manifest["schema"]) == (1, "1.2.3", 2)
        assert [entry["path"] for entry in manifest["files"]] == names[1:]
        for entry in manifest["files"]:
            content = tar.extractfile(entry["path"])
            assert content is not None
            data = content.read()
            assert (len(data), blake3(data).hexdigest()) == (entry["size"], entry["blake3"])
    assert {"journal.db", "tokens.json", "config.toml", "agents/fmt/workspace/uploads/a.txt"} < set(
        names
    )
    assert sum(name.startswith("cas/") for name in names) == 5
    assert not any(name.startswith(("log", "lock", "spill")) for name in names)


def test_restored_store_has_the_same_entries_and_content(
    archive: Path, store: Store, tmp_path: Path
) -> None:
    before = store.fetch(QueryEntries(EntryFilter(), EVERYTHING))
    target = tmp_path / "restored"
    restore_archive(archive, target)
    for path in [target, *target.rglob("*")]:
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path
    with open_store(target) as restored:
        assert restored.fetch(QueryEntries(EntryFilter(), EVERYTHING)) == before
        for row in before:
            assert restored.fetch(ReadBlob(row.outputs[0].hash.hex())).data.startswith(b"content")
    assert (target / "agents/fmt/workspace/uploads/a.txt").read_bytes() == b"uploaded"


def test_backup_under_load_verifies(store: Store, state: Path, tmp_path: Path) -> None:
    stop = threading.Event()

    def load() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            run(store, outputs=(Output("value", os.urandom(100)),))

    thread = threading.Thread(target=load)
    thread.start()
    try:
        for number in range(3):
            path = tmp_path / f"{number}.tar"
            assert create_archive(state, path, version="1").missing == ()
            verify_archive(path)
    finally:
        stop.set()
        thread.join()
    target = tmp_path / "restored"
    restore_archive(tmp_path / "2.tar", target)
    with open_store(target) as restored:
        for row in restored.fetch(QueryEntries(EntryFilter(limit=10_000), EVERYTHING)):
            for output in row.outputs:
                assert len(restored.fetch(ReadBlob(output.hash.hex())).data) == 100


def test_vanished_blob_is_noted_as_missing(store: Store, state: Path, tmp_path: Path) -> None:
    hashes = filled(store, state)
    blob_file(state, hashes[2]).unlink()
    path = tmp_path / "backup.tar"
    assert create_archive(state, path, version="1").missing == (hashes[2].hex(),)
    verify_archive(path)


def test_blobs_and_secrets_are_a_choice(store: Store, state: Path, tmp_path: Path) -> None:
    filled(store, state)
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "key").write_bytes(b"s3cret")
    plain = create_archive(state, tmp_path / "a.tar", version="1", blobs=False)
    assert not any(member.path.startswith(("cas/", "secrets/")) for member in plain.members)
    full = create_archive(state, tmp_path / "b.tar", version="1", secrets=secrets)
    assert "secrets/key" in {member.path for member in full.members}


def test_archive_can_be_a_stream(store: Store, state: Path, tmp_path: Path) -> None:
    filled(store, state)
    out = io.BytesIO()
    create_archive(state, out, version="1")
    path = tmp_path / "stream.tar"
    path.write_bytes(out.getvalue())
    verify_archive(path)


def test_nothing_is_left_of_an_archive_that_could_not_be_made(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ArchiveError):
        create_archive(empty, tmp_path / "x.tar", version="1")
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


@pytest.mark.parametrize("damage", ["content", "cut", "no tar", "added", "escaping", "removed"])
def test_unsound_archive_is_refused_and_restores_nothing(
    archive: Path, tmp_path: Path, damage: str
) -> None:
    raw = archive.read_bytes()
    if damage == "content":
        raw = raw.replace(b"uploaded", b"UPLOADED")
    elif damage == "cut":
        raw = raw[: len(raw) // 2]
    elif damage == "no tar":
        raw = b"hello" * 1000
    else:
        raw = _rewritten(archive, damage)
    archive.write_bytes(raw)
    with pytest.raises(ArchiveError):
        verify_archive(archive)
    target = tmp_path / "restored"
    with pytest.raises(ArchiveError):
        restore_archive(archive, target)
    assert [path.name for path in target.iterdir()] == ["lock"]
    assert not list(tmp_path.glob(".restored*"))
    assert not (tmp_path / "evil").exists()


def _rewritten(archive: Path, damage: str) -> bytes:
    """The archive with one member more, or less, or with a name that leads out."""
    out = io.BytesIO()
    with tarfile.open(archive) as source, tarfile.open(fileobj=out, mode="w") as target:
        for info in source:
            file = source.extractfile(info)
            assert file is not None
            data = file.read()
            if info.name == "manifest.json" and damage == "escaping":
                document = json.loads(data)
                entry = {"path": "../evil", "size": 1, "blake3": blake3(b"x").hexdigest()}
                document["files"].append(entry)
                data = json.dumps(document).encode()
                info.size = len(data)
            if info.name == "config.toml" and damage == "removed":
                continue
            target.addfile(info, io.BytesIO(data))
        if damage in ("added", "escaping"):
            extra = tarfile.TarInfo("../evil" if damage == "escaping" else "extra")
            extra.size = 1
            target.addfile(extra, io.BytesIO(b"x"))
    return out.getvalue()


def test_restore_refuses_a_directory_in_use_or_not_empty(
    archive: Path, store: Store, state: Path, tmp_path: Path
) -> None:
    with pytest.raises(StoreInUse):
        restore_archive(archive, state, force=True)
    target = tmp_path / "other"
    with open_store(target) as other:
        run(other, src="old entry")
    with pytest.raises(ArchiveError, match="not empty"):
        restore_archive(archive, target)
    restore_archive(archive, target, force=True)
    with open_store(target) as restored:
        rows = restored.fetch(QueryEntries(EntryFilter(), EVERYTHING))
        assert len(rows) == 5 and all(row.src != "old entry" for row in rows)


def test_tokens_can_be_left_out(archive: Path, tmp_path: Path) -> None:
    kept, dropped = tmp_path / "kept", tmp_path / "dropped"
    restore_archive(archive, kept)
    restore_archive(archive, dropped, drop_tokens=True)
    assert (kept / "tokens.json").exists()
    assert not (dropped / "tokens.json").exists()
