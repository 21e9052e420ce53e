"""Programs that want too much: depth and memory end the evaluation, not the session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from ipc.jsonrpc import RpcError
from tests.system.daemon import Daemon

MEMORY_BYTES: Final = 192 << 20


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with Daemon(config=f"[quotas]\nworker_memory_bytes = {MEMORY_BYTES}\n") as running:
        yield running


class Attached:
    """A client in a session of its own, whose worker must stay the same."""

    def __init__(self, daemon: Daemon, session: str) -> None:
        self._client = daemon.client(session)
        self._worker = self.run("os.pid()")

    def run(self, src: str) -> str:
        result: dict[str, Any] = self._client.call("exec", {"src": src})
        return str(result["render"])

    def code_of(self, src: str) -> str:
        """The code of the error the program raises; the session goes on."""
        with pytest.raises(RpcError) as caught:
            self.run(src)
        assert self.run("os.pid()") == self._worker
        return str(caught.value.data.get("code", caught.value.kind))


@pytest.fixture
def attached(daemon: Daemon, request: pytest.FixtureRequest) -> Attached:
    return Attached(daemon, request.node.name[:100].replace("/", "|"))


DEEP = {
    "plain": "fn f(n) { 1 + f(n) }\nf(0)",
    "map": "fn f(n) { [n].map(x => f(x)) }\nf(0)",
    "alias": "alias q = q\nq",
    "hole": 'fn f(n) { "a{f(n)}b" }\nf(0)',
    "spawn": "fn f(n) { [n].map(x => f(x)) }\n(spawn { f(0) }).await()",
    "parallel": "fn f(n) { f(n) }\nparallel(() => f(0), () => f(1))",
}


@pytest.mark.parametrize("src", DEEP.values(), ids=DEEP)
def test_recursion_without_end_leaves_the_worker_alive(attached: Attached, src: str) -> None:
    assert attached.code_of(src) == "recursion_limit"


def test_a_deeply_nested_value_is_answered(attached: Attached) -> None:
    text = attached.run("var x = []\nfor i in 0..20000 { x = [x] }\nx")
    assert text.startswith("[[[")


GROWING = {
    "text": 'fn grow(s) { var t = s; while true { t = t + t } }\ngrow("x")',
    "a list": "fn grow(s) { var t = s; while true { t = t + t } }\ngrow([1])",
    "records": "(0..1000000000).map(n => {a: n, b: [n]})",
    "a collected stream": "(0..1000000000).stream().map(n => [n]).collect()",
    "a task": 'let t = spawn { var s = "x"; while true { s = s + s } }\nt.await()',
    "one of parallel": 'parallel(() => { var s = "x"; while true { s = s + s } }, () => 2)',
    "an endless device": "cat /dev/zero",
    "text made of a result": "(0..30000000).json()",
}


@pytest.mark.parametrize("src", GROWING.values(), ids=GROWING)
def test_a_value_past_the_memory_limit_ends_the_evaluation_alone(
    attached: Attached, src: str
) -> None:
    assert attached.code_of(src) == "custom"
    # What the failed evaluation held is free again.
    assert attached.run("(0..100000).map(n => [n]).len()") == "100000"


def test_running_out_of_memory_can_be_caught(attached: Attached) -> None:
    src = 'try { var s = "x"; while true { s = s + s } } catch e { e.msg }'
    assert "out of memory" in attached.run(src)


def test_stacks_of_tasks_do_not_count(attached: Attached) -> None:
    assert attached.run("(0..40).map(n => spawn { n }).map(t => t.await()).sum()") == "780"


def test_programs_start_under_the_limit(attached: Attached) -> None:
    assert attached.run("sh -c 'echo started'") == "started"
