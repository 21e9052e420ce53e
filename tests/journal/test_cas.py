"""The content store: format, verification, ranges, damage (chapter 61 §5)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import zstandard
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from journal import (
    BlobDamaged,
    BlobMissing,
    BlobsPresent,
    BlobVisible,
    EnsureSession,
    LinkBlob,
    Output,
    ReadBlob,
    Store,
    Visibility,
)
from journal.cas import FRAME_CONTENT_BYTES, ContentStore
from tests.journal.support import OWNER, blob_file, rows, run, session_id

MIB = 1024 * 1024
SIZES = [0, 1, 5000, MIB - 1, MIB, MIB + 1, 3 * MIB, 3 * MIB + 17]


def pattern(size: int) -> bytes:
    return (b"12345678" * (size // 8 + 1))[:size] if size < MIB else os.urandom(size)


@pytest.fixture
def content(tmp_path: Path) -> ContentStore:
    return ContentStore(tmp_path / "cas", durable=False, cap_bytes=1 << 40)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", ["bytes", "file"])
def test_any_zstandard_reader_decodes_the_file(content: ContentStore, size: int, way: str) -> None:
    data = pattern(size)
    if way == "bytes":
        written = content.put(data)
    else:
        fd = os.memfd_create("data")
        os.write(fd, data)
        written = content.put_file(fd, size)
        os.close(fd)

    assert written.hash == blake3(data).digest()
    raw = Path(content.path(written.hash.hex())).read_bytes()
    assert len(raw) == written.disk_length
    with zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as reader:
        assert reader.read() == data


@pytest.mark.parametrize("size", SIZES)
def test_long_content_is_independent_frames_with_their_sizes(
    content: ContentStore, size: int
) -> None:
    from journal.zframes import frame_at

    written = content.put(pattern(size))
    path = Path(content.path(written.hash.hex()))
    lengths, position = [], 0
    with path.open("rb") as file:
        while position < path.stat().st_size:
            frame = frame_at(file.fileno(), position, path.stat().st_size)
            lengths.append(frame.content_length)
            position = frame.end
    whole, last = divmod(size, MIB)
    assert lengths == [MIB] * whole + ([last] if last or not whole else [])


@pytest.mark.parametrize("size", SIZES)
def test_pages_put_together_are_the_content(content: ContentStore, size: int) -> None:
    data = pattern(size)
    name = content.put(data).hash.hex()
    page = 400_001
    pieces: list[bytes] = []
    while True:
        piece = content.read(name, len(b"".join(pieces)), page)
        assert piece.total == size
        pieces.append(piece.data)
        if len(piece.data) < page:
            break
    assert b"".join(pieces) == data


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_ranges_are_slices(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    content = ContentStore(tmp_path_factory.getbasetemp() / "cas", durable=False, cap_bytes=1 << 40)
    size = data.draw(st.sampled_from([0, 10, MIB, 2 * MIB + 3]))
    whole = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    name = content.put(whole).hash.hex()
    offset = data.draw(st.integers(0, size + 10))
    length = data.draw(st.none() | st.integers(0, size + 10))
    piece = content.read(name, offset, length)
    start = min(offset, size)
    assert piece.offset == start
    assert piece.data == whole[start : None if length is None else start + length]


def test_ranged_read_decodes_only_the_frames_it_needs(
    content: ContentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = content.put(os.urandom(8 * MIB)).hash.hex()
    content.read(name, 0, 1)
    decoded: list[int] = []
    from journal import zframes

    def counting(decompressor: Any, fd: int, frame: zframes.Frame) -> bytes:
        decoded.append(frame.start)
        return zframes.decode_frame(decompressor, fd, frame)

    monkeypatch.setattr("journal.cas.decode_frame", counting)
    content.read(name, 5 * MIB + 10, 100)
    assert len(decoded) == 1
    content.read(name, 5 * MIB - 10, 100)
    assert len(decoded) == 3


def test_foreign_files_in_one_big_frame_are_read_too(content: ContentStore) -> None:
    data = os.urandom(2 * MIB + 100)
    digest = blake3(data).digest()
    path = Path(content.path(digest.hex()))
    path.parent.mkdir(parents=True)
    path.write_bytes(zstandard.ZstdCompressor().compress(data))
    assert content.read(digest.hex()).data == data
    assert content.read(digest.hex(), MIB, 50).data == data[MIB : MIB + 50]


# --- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage", ["other content", "flipped byte", "cut", "empty", "appended", "no zstandard"]
)
@pytest.mark.parametrize("size", [500, 2 * MIB + 5])
@pytest.mark.parametrize("read_before", [False, True])
def test_damaged_content_is_an_integrity_error_and_never_wrong_bytes(
    store: Store, state: Path, damage: str, size: int, read_before: bool
) -> None:
    data = os.urandom(size)
    _, done = run(store, outputs=(Output("value", data),))
    (digest,) = done.output_hashes
    path = blob_file(state, digest)
    if read_before:
        assert store.fetch(ReadBlob(digest.hex())).data == data
    raw = bytearray(path.read_bytes())
    if damage == "other content":
        raw = bytearray(zstandard.ZstdCompressor().compress(os.urandom(size)))
    elif damage == "flipped byte":
        raw[len(raw) // 2] ^= 1
    elif damage == "cut":
        del raw[-7:]
    elif damage == "empty":
        raw.clear()
    elif damage == "appended":
        raw += zstandard.ZstdCompressor().compress(b"more")
    else:
        raw = bytearray(os.urandom(len(raw)))
    path.write_bytes(raw)
    os.utime(path, ns=(1, 1))

    for offset, length in ((0, None), (10, 20)):
        with pytest.raises(BlobDamaged) as caught:
            store.fetch(ReadBlob(digest.hex(), offset, length))
    assert str(caught.value) == (
        f"CAS blob {digest.hex()} failed integrity check: content hash mismatch"
    )
    assert path.read_bytes() == raw
    assert store.content.damaged_seen == 2

    run(store, outputs=(Output("value", data),))
    assert store.fetch(ReadBlob(digest.hex())).data == data


def test_missing_file_is_another_answer_than_a_damaged_one(store: Store, state: Path) -> None:
    _, done = run(store, outputs=(Output("value", b"here"), Output("render", b"gone")))
    here, gone = done.output_hashes
    blob_file(state, gone).unlink()

    with pytest.raises(BlobMissing):
        store.fetch(ReadBlob(gone.hex()))
    assert store.fetch(BlobsPresent(frozenset((here, gone)))) == {here}

    run(store, outputs=(Output("render", b"gone"),))
    assert store.fetch(ReadBlob(gone.hex())).data == b"gone"


def test_verified_content_is_not_hashed_again_for_later_ranges(
    content: ContentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = content.put(os.urandom(3 * FRAME_CONTENT_BYTES)).hash.hex()
    content.read(name, 0, 10)

    def forbidden(*_: object) -> None:
        raise AssertionError("hashed again")

    monkeypatch.setattr(content, "_decode", forbidden)
    content.read(name, FRAME_CONTENT_BYTES, 10)


def test_writing_known_content_touches_no_file(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(store, outputs=(Output("value", b"often"),))

    def forbidden(*_: object) -> None:
        raise AssertionError("written again")

    monkeypatch.setattr(store.content, "_place", forbidden)
    run(store, outputs=(Output("value", b"often"), Output("render", b"often")))


def test_full_durability_flushes_before_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    real_sync, real_rename = os.fsync, os.rename

    def sync(fd: int) -> None:
        calls.append("fsync")
        real_sync(fd)

    def rename(*paths: str) -> None:
        calls.append("rename")
        real_rename(*paths)

    content = ContentStore(tmp_path / "cas", durable=True, cap_bytes=1 << 40)
    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "rename", rename)
    content.put(b"content")
    assert calls[-3:] == ["fsync", "rename", "fsync"]


# --- visibility and access -----------------------------------------------------------------------


def test_content_is_visible_through_a_visible_entry_or_a_value_of_the_session(store: Store) -> None:
    _, done = run(store, outputs=(Output("value", b"secret"),))
    name = done.output_hashes[0].hex()
    mine = Visibility(False, OWNER, (OWNER,))
    other = Visibility(False, "agent:b", ("agent:b",))

    assert store.fetch(ReadBlob(name, visibility=mine)).data == b"secret"
    with pytest.raises(BlobMissing):
        store.fetch(ReadBlob(name, visibility=other))
    assert not store.fetch(BlobVisible("no hash", mine))

    session = store.apply(EnsureSession("agent:b", "s", 1))
    assert not store.fetch(BlobVisible(name, other, session))
    stored = store.ingest_now(b"secret")
    store.apply(LinkBlob(stored, session, 5))
    assert store.fetch(ReadBlob(name, visibility=other, session_id=session)).data == b"secret"


def test_guest_sees_the_content_of_its_own_submissions(store: Store) -> None:
    _, done = run(store, principal="agent:g", outputs=(Output("value", b"by guest"),))
    guest = Visibility(False, "agent:g", ("agent:g",))
    assert store.fetch(BlobVisible(done.output_hashes[0].hex(), guest))


def test_reading_renews_the_access_time_at_most_once_a_minute(store: Store, state: Path) -> None:
    _, done = run(store, outputs=(Output("value", b"read me"),), ended_ns=5)
    assert rows(state, "SELECT last_access_ns FROM blob") == [(5,)]
    for _ in range(3):
        store.fetch(ReadBlob(done.output_hashes[0].hex()))
    session_id(store)
    ((first,),) = rows(state, "SELECT last_access_ns FROM blob")
    assert first > 5
    store.fetch(ReadBlob(done.output_hashes[0].hex()))
    session_id(store)
    assert rows(state, "SELECT last_access_ns FROM blob") == [(first,)]
