"""Reading stored results and content (chapter 60 §5.10, §5.11)."""

from __future__ import annotations

import base64

import blake3
import pytest

from tests.system.daemon import Daemon, Wire

PAGE = 49_152


def test_formats_of_one_value(attached: Wire) -> None:
    attached.result("exec", {"src": '"naïve"'})
    assert attached.result("value.get", {"ref": "out:1"}) == {
        "ref": "out:1",
        "value": {"$": "str", "v": "naïve"},
    }
    assert attached.result("value.get", {"ref": "out:1", "format": "render"}) == {
        "ref": "out:1",
        "render": "naïve",
    }
    assert attached.result("value.get", {"ref": "out:1", "format": "raw"}) == {
        "ref": "out:1",
        "raw": "naïve",
    }


def test_pages_reassemble_to_the_stored_content(attached: Wire) -> None:
    attached.result(
        "exec", {"src": "python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(256)) * 700)'"}
    )
    wanted = bytes(range(256)) * 700
    got = b""
    offset: int | None = 0
    while offset is not None:
        page = attached.result(
            "value.get", {"ref": "out:1", "path": "stdout", "format": "raw", "offset": offset}
        )
        piece = base64.b64decode(page["raw_base64"])
        assert len(piece) == page["len"] <= PAGE
        assert (page["offset"], page["total"]) == (offset, len(wanted))
        got += piece
        offset = page.get("next")
    assert got == wanted


def test_a_page_of_exactly_the_limit_has_no_range_members(attached: Wire) -> None:
    attached.result("exec", {"src": f"sh -c 'head -c {PAGE} /dev/zero'"})
    request = {"ref": "out:1", "path": "stdout", "format": "raw"}
    assert set(attached.result("value.get", request)) == {"ref", "raw_base64"}
    attached.result("exec", {"src": f"sh -c 'head -c {PAGE + 1} /dev/zero'"})
    page = attached.result("value.get", {**request, "ref": "out:2"})
    assert (page["len"], page["total"], page["next"]) == (PAGE, PAGE + 1, PAGE)


@pytest.mark.parametrize(
    ("params", "code", "kind"),
    [
        ({"ref": "out:99"}, -32004, "unknown_ref"),
        ({"ref": "out:01"}, -32004, "unknown_ref"),
        ({"ref": "shoal://out/1"}, -32004, "unknown_ref"),
        ({"ref": "task:1"}, -32004, "unknown_ref"),
        ({"ref": "out:1", "path": "nope"}, -32005, "bad_path_or_slice"),
        ({"ref": "out:1", "slice": [0, 1]}, -32005, "bad_path_or_slice"),
        ({"ref": "out:1", "format": "raw"}, -32005, "bad_path_or_slice"),
        ({"ref": "out:1", "format": "xml"}, -32602, "invalid_params"),
        ({"ref": "out:1", "offset": 1}, -32602, "invalid_params"),
        ({"ref": "out:1", "slice": [1]}, -32602, "invalid_params"),
        ({}, -32602, "invalid_params"),
    ],
)
def test_what_cannot_be_read(attached: Wire, params: object, code: int, kind: str) -> None:
    attached.result("exec", {"src": "{a: 1}"})
    error = attached.error("value.get", params)
    assert (error["code"], error["data"]["kind"]) == (code, kind)


def test_the_transcript_keeps_the_newest_values() -> None:
    with Daemon(config="[quotas]\ntranscript_values = 3\n") as daemon, daemon.wire() as wire:
        wire.result("session.attach")
        for number in range(4):
            wire.result("exec", {"src": str(number)})
        error = wire.error("value.get", {"ref": "out:1"})
        assert (error["code"], error["data"]["kind"]) == (-32004, "expired_ref")
        assert wire.result("value.get", {"ref": "out:2"})["value"] == {"$": "int", "v": 1}


def _outputs(wire: Wire) -> dict[str, str]:
    entry = wire.result("journal.query", {"limit": 1})[0]
    return {output["kind"]: output["hash"] for output in entry["outputs"]}


def test_recorded_content_is_found_by_its_hash(attached: Wire) -> None:
    attached.result("exec", {"src": "6 * 7"})
    outputs = _outputs(attached)
    assert attached.result("blob.get", {"hash": outputs["value"]}) == {
        "hash": outputs["value"],
        "value": {"$": "int", "v": 42},
    }
    assert attached.result("blob.get", {"hash": outputs["render"]}) == {
        "hash": outputs["render"],
        "value": 42,
    }


def test_content_that_is_no_json_comes_as_bytes(attached: Wire) -> None:
    attached.result("exec", {"src": "sh -c 'printf hello'"})
    name = _outputs(attached)["stdout"]
    assert name == blake3.blake3(b"hello").hexdigest()
    assert attached.result("blob.get", {"hash": name})["value"] == {
        "$": "bytes",
        "len": 5,
        "v": base64.b64encode(b"hello").decode(),
    }
    ranged = attached.result("blob.get", {"hash": name, "offset": 1, "length": 2})
    assert ranged["value"] == {"$": "bytes", "len": 5, "v": base64.b64encode(b"el").decode()}
    assert (ranged["offset"], ranged["len"], ranged["total"], ranged["next"]) == (1, 2, 5, 3)


def test_json_with_newlines_still_fits_one_line(attached: Wire) -> None:
    attached.result("exec", {"src": "printf '{\"a\":\\n 1}'"})
    name = _outputs(attached)["stdout"]
    assert attached.result("blob.get", {"hash": name})["value"] == {"a": 1}


@pytest.mark.parametrize("name", ["0" * 64, "A" * 64, "abc", "../../etc/passwd", ""])
def test_unknown_hashes_are_all_alike(attached: Wire, name: str) -> None:
    error = attached.error("blob.get", {"hash": name})
    assert (error["code"], error["message"]) == (-32004, "unknown value hash")
    assert error["data"]["kind"] == "unknown_hash"


@pytest.mark.parametrize("params", [{}, {"hash": 5}, {"hash": None}])
def test_a_hash_is_required(attached: Wire, params: object) -> None:
    error = attached.error("blob.get", params)
    assert (error["code"], error["message"]) == (-32602, "blob.get requires a hash")
