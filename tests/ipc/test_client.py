"""The blocking and the async client against a scripted server: both keep the same rules."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import socket
import subprocess
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ipc.client import (
    AsyncClient,
    Client,
    ClientClosed,
    ConnectionLost,
    NotReachable,
    ProtocolViolation,
    RpcError,
    TokenFileError,
    find_token,
    read_token_file,
)
from ipc.client.protocol import Event, EventQueue, Exchange, Notice, Reply, backoff
from tests.ipc.scripted import WAIT_S, Connection, echo, serving


class Flavour:
    """One of the two clients behind awaitable calls, so that each rule is tested on both."""

    def __init__(self, cls: type[Client] | type[AsyncClient]) -> None:
        self.cls = cls

    async def connect(self, path: Path, **options: Any) -> Any:
        return await self.run(self.cls.connect, path, **options)

    async def run(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A call of either client, off the event loop when it blocks."""
        async with asyncio.timeout(WAIT_S):
            if inspect.iscoroutinefunction(call):
                return await call(*args, **kwargs)
            return await asyncio.to_thread(call, *args, **kwargs)

    async def take(self, subscription: Any) -> Event | None:
        if self.cls is Client:
            taken: Event | None = await self.run(subscription.take)
            return taken
        async with asyncio.timeout(WAIT_S):
            event: Event | None = await anext(subscription, None)
            return event


def one_request(connection: Connection) -> None:
    """Take one request and close without an answer."""
    connection.request()


def swallow(connection: Connection) -> None:
    """Take requests and never answer."""
    while True:
        connection.request()


@pytest.fixture(params=[Client, AsyncClient], ids=["blocking", "async"])
def flavour(request: pytest.FixtureRequest) -> Flavour:
    return Flavour(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "k.sock"


async def test_answers_are_matched_by_number_not_by_order(flavour: Flavour, path: Path) -> None:
    def backwards(connection: Connection) -> None:
        requests = [connection.request() for _ in range(3)]
        for request in reversed(requests):
            connection.answer(request, request["params"])

    with serving(path, backwards):
        client = await flavour.connect(path)
        calls: list[Awaitable[Any]] = [flavour.run(client.call, "m", {"n": n}) for n in range(3)]
        assert await asyncio.gather(*calls) == [{"n": 0}, {"n": 1}, {"n": 2}]
        await flavour.run(client.close)


async def test_error_answer_raises_with_code_message_and_data(flavour: Flavour, path: Path) -> None:
    # `code` and `message` in the data are the language's and must not collide with the error's own.
    data = {"kind": "raised", "code": "cmd_failed", "message": "x", "status": 3}

    def refuse(connection: Connection) -> None:
        request = connection.request()
        error = {"code": -32002, "message": "failed", "data": data}
        connection.send({"id": request["id"], "error": error})
        echo(connection)

    with serving(path, refuse):
        client = await flavour.connect(path)
        with pytest.raises(RpcError) as caught:
            await flavour.run(client.call, "exec", {"src": "x"})
        assert (caught.value.code, str(caught.value)) == (-32002, "failed")
        assert caught.value.kind == "raised"
        assert caught.value.data == data
        assert await flavour.run(client.call, "again") == {"method": "again", "params": None}
        await flavour.run(client.close)


async def test_large_integers_and_non_ascii_arrive_unchanged(flavour: Flavour, path: Path) -> None:
    value = {"u": 2**64 - 1, "i": -(2**63), "s": "naïve \U0001f41a \u2028"}
    with serving(path, echo):
        client = await flavour.connect(path)
        assert (await flavour.run(client.call, "m", value))["params"] == value
        await flavour.run(client.close)


async def test_frame_in_single_bytes_is_one_frame(flavour: Flavour, path: Path) -> None:
    def drip(connection: Connection) -> None:
        request = connection.request()
        frame = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": "whole"}) + "\n"
        for byte in frame.encode():
            connection.raw.sendall(bytes([byte]))
        connection.request()

    with serving(path, drip):
        client = await flavour.connect(path)
        assert await flavour.run(client.call, "m") == "whole"
        await flavour.run(client.close)


async def test_lost_connection_fails_open_and_later_calls(flavour: Flavour, path: Path) -> None:
    with serving(path, one_request):
        client = await flavour.connect(path)
        with pytest.raises(ConnectionLost):
            await flavour.run(client.call, "exec")
        with pytest.raises(ConnectionLost):
            await flavour.run(client.call, "exec")
        await flavour.run(client.close)


async def test_refusal_without_id_is_what_calls_raise(flavour: Flavour, path: Path) -> None:
    def refuse(connection: Connection) -> None:
        data = {"kind": "peer_refused"}
        connection.send({"id": None, "error": {"code": -32030, "message": "no", "data": data}})

    with serving(path, refuse):
        client = await flavour.connect(path)
        with pytest.raises(RpcError) as caught:
            while True:
                await flavour.run(client.call, "session.attach")
        assert caught.value.kind == "peer_refused"
        await flavour.run(client.close)


@pytest.mark.parametrize("line", [b"not json\n", b"[]\n", b'{"jsonrpc":"2.0"}\n', b"\xff\n"])
async def test_line_that_is_no_frame_ends_the_connection(
    flavour: Flavour, path: Path, line: bytes
) -> None:
    def garbage(connection: Connection) -> None:
        connection.request()
        connection.raw.sendall(line)
        connection.request()

    with serving(path, garbage):
        client = await flavour.connect(path, reconnect=True)
        with pytest.raises(ProtocolViolation):
            await flavour.run(client.call, "m")
        await flavour.run(client.close)


async def test_close_fails_open_calls_ends_iterations_and_may_repeat(
    flavour: Flavour, path: Path
) -> None:
    arrived = threading.Event()

    def hold(connection: Connection) -> None:
        connection.answer(connection.request(), {})
        connection.request()
        arrived.set()
        connection.request()

    with serving(path, hold):
        client = await flavour.connect(path)
        subscription = await flavour.run(client.subscribe, "journal")
        call = asyncio.create_task(flavour.run(client.call, "task.await"))
        assert await asyncio.to_thread(arrived.wait, WAIT_S)
        await flavour.run(client.close)
        with pytest.raises(ClientClosed):
            await call
        assert await flavour.take(subscription) is None
        await flavour.run(client.close)
        with pytest.raises(ClientClosed):
            await flavour.run(client.call, "m")


async def test_events_go_to_their_channel_even_before_the_answer(
    flavour: Flavour, path: Path
) -> None:
    def publish(connection: Connection) -> None:
        for _ in range(2):
            request = connection.request()
            connection.event(request["params"]["channel"], 4, {"early": True})
            connection.answer(request, {})
        connection.event("user.b", 5)
        connection.event("user.a", 6)
        connection.event("user.unknown", 7)
        connection.request()

    with serving(path, publish):
        client = await flavour.connect(path)
        a = await flavour.run(client.subscribe, "user.a")
        b = await flavour.run(client.subscribe, "user.b")
        first = await flavour.take(a)
        assert first is not None
        assert (first.seq, first.payload, first.session) == (4, {"early": True}, "s")
        assert [(await flavour.take(each)).seq for each in (a, b, b)] == [6, 4, 5]  # type: ignore[union-attr]
        await flavour.run(client.close)


async def test_refused_subscription_leaves_nothing_behind(flavour: Flavour, path: Path) -> None:
    def refuse(connection: Connection) -> None:
        request = connection.request()
        error = {"code": -32603, "message": "full", "data": {"kind": "quota"}}
        connection.send({"id": request["id"], "error": error})
        connection.request()

    with serving(path, refuse):
        client = await flavour.connect(path)
        with pytest.raises(RpcError, match="full"):
            await flavour.run(client.subscribe, "user.a")
        assert client._subscriptions == {}
        await flavour.run(client.close)


async def test_notice_goes_to_its_handler(flavour: Flavour, path: Path) -> None:
    def drain(connection: Connection) -> None:
        params = {"state": "draining", "seconds": 8}
        connection.send({"method": "kernel", "params": params})
        echo(connection)

    notices: list[Notice] = []
    with serving(path, drain):
        client = await flavour.connect(path, on_notice=notices.append)
        await flavour.run(client.call, "m")
        assert notices == [Notice("kernel", {"state": "draining", "seconds": 8})]
        await flavour.run(client.close)


async def test_reconnect_attaches_again_and_resumes_after_the_last_event(
    flavour: Flavour, path: Path
) -> None:
    lose = threading.Event()

    def first(connection: Connection) -> None:
        connection.answer(connection.request(), {"session": "work"})
        connection.answer(connection.request(), {})
        connection.event("journal", 7)
        lose.wait(WAIT_S)

    seen: list[dict[str, Any]] = []

    def second(connection: Connection) -> None:
        for _ in range(2):
            request = connection.request()
            seen.append(request)
            connection.answer(request, {})
        connection.event("journal", 8)
        echo(connection)

    with serving(path, first, second):
        client = await flavour.connect(path, reconnect=True)
        await flavour.run(client.attach, "work", token="secret", client={"kind": "repl"})
        subscription = await flavour.run(client.subscribe, "journal", 3)
        assert (await flavour.take(subscription)).seq == 7  # type: ignore[union-attr]
        lose.set()
        assert (await flavour.take(subscription)).seq == 8  # type: ignore[union-attr]
        assert [(request["method"], request["params"]) for request in seen] == [
            (
                "session.attach",
                {"session": "work", "token": "secret", "client": {"kind": "repl"}},
            ),
            ("events.subscribe", {"channel": "journal", "since": 7}),
        ]
        assert (await flavour.run(client.call, "m"))["method"] == "m"
        await flavour.run(client.close)


async def test_call_whose_answer_was_lost_is_not_repeated(flavour: Flavour, path: Path) -> None:
    seen: list[str] = []

    def lose(connection: Connection) -> None:
        seen.append(connection.request()["method"])

    def serve(connection: Connection) -> None:
        while True:
            request = connection.request()
            seen.append(request["method"])
            connection.answer(request, None)

    with serving(path, lose, serve):
        client = await flavour.connect(path, reconnect=True)
        with pytest.raises(ConnectionLost):
            await flavour.run(client.call, "exec")
        await flavour.run(client.call, "next")
        assert seen == ["exec", "next"]
        await flavour.run(client.close)


async def test_refused_reattachment_ends_the_client(flavour: Flavour, path: Path) -> None:
    def first(connection: Connection) -> None:
        connection.answer(connection.request(), {})

    def refuse(connection: Connection) -> None:
        request = connection.request()
        error = {"code": -32030, "message": "revoked", "data": {"kind": "auth_failed"}}
        connection.send({"id": request["id"], "error": error})
        connection.request()

    with serving(path, first, refuse):
        client = await flavour.connect(path, reconnect=True)
        await flavour.run(client.attach, "work")
        with pytest.raises((RpcError, ConnectionLost)) as caught:
            while True:
                await flavour.run(client.call, "m")
        while not isinstance(caught.value, RpcError):
            with pytest.raises((RpcError, ConnectionLost)) as caught:
                await flavour.run(client.call, "m")
        assert caught.value.kind == "auth_failed"
        await flavour.run(client.close)


async def test_close_ends_waiting_for_a_reconnect(flavour: Flavour, path: Path) -> None:
    with serving(path, lambda connection: None):
        client = await flavour.connect(path, reconnect=True)
        with pytest.raises(ConnectionLost):
            while True:
                await flavour.run(client.call, "m")
    waiting = asyncio.create_task(flavour.run(client.call, "m"))
    await asyncio.sleep(0)
    await flavour.run(client.close)
    with pytest.raises((ClientClosed, ConnectionLost)):
        await waiting


async def test_nobody_listening_says_where(flavour: Flavour, path: Path) -> None:
    with pytest.raises(NotReachable, match="No such file") as caught:
        await flavour.connect(path)
    assert caught.value.path == path


async def test_many_pipelined_calls_all_get_their_answer(flavour: Flavour, path: Path) -> None:
    with serving(path, echo):
        client = await flavour.connect(path)
        if flavour.cls is Client:
            futures = [client.start("m", n) for n in range(500)]
            answers = [await flavour.run(future.result) for future in futures]
        else:
            answers = await asyncio.gather(*(client.call("m", n) for n in range(500)))
        assert [answer["params"] for answer in answers] == list(range(500))
        await flavour.run(client.close)


async def test_cancelled_wait_drops_only_its_own_answer(path: Path) -> None:
    arrived, go = threading.Event(), threading.Event()

    def hold(connection: Connection) -> None:
        held = connection.request()
        arrived.set()
        go.wait(WAIT_S)
        connection.answer(held, "late")
        echo(connection)

    with serving(path, hold):
        async with await AsyncClient.connect(path) as client:
            call = asyncio.create_task(client.call("slow"))
            assert await asyncio.to_thread(arrived.wait, WAIT_S)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            go.set()
            assert (await client.call("next"))["method"] == "next"
            assert client._pending == {}


def test_timeout_of_a_blocking_call(path: Path) -> None:
    with (
        serving(path, swallow),
        Client.connect(path) as client,
        pytest.raises(TimeoutError),
    ):
        client.call("slow", timeout=0.01)


# --- the protocol without a socket -------------------------------------------------------------


def test_exchange_refuses_an_endless_line_within_its_bound() -> None:
    exchange = Exchange()
    with pytest.raises(ProtocolViolation, match="16 MiB"):
        for _ in range(300):
            list(exchange.feed(b"x" * 65536))


def test_exchange_delivers_what_came_before_garbage() -> None:
    feed = Exchange().feed(b'{"jsonrpc":"2.0","id":1,"result":null}\ngarbage\n')
    assert next(feed) == Reply(1)
    with pytest.raises(ProtocolViolation):
        next(feed)


def test_full_queue_counts_and_reports_one_gap_in_its_place() -> None:
    queue = EventQueue(limit=2)
    for seq in range(6):
        queue.put(Event("c", seq, 0, "p"))
    assert len(queue) == 3
    assert [queue.take().payload for _ in range(3)] == ["p", "p", {"dropped": 4, "latest_seq": 5}]
    assert len(queue) == 0
    queue.put(Event("c", 6, 0, "p"))
    assert queue.take().seq == 6


def test_reconnect_pauses_grow_to_five_seconds() -> None:
    pauses = backoff()
    taken = [next(pauses) for _ in range(9)]
    assert taken[0] == 0.1
    assert taken == sorted(taken)
    assert taken[-1] == 5.0


# --- credentials -------------------------------------------------------------------------------


def token_file(tmp_path: Path, text: str = "secret\n", mode: int = 0o600) -> Path:
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_token_file_content_is_trimmed(tmp_path: Path) -> None:
    assert read_token_file(token_file(tmp_path, "  s3cret\n")) == "s3cret"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o400, 0o700, 0o666])
def test_token_file_of_another_mode_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(TokenFileError, match="must have mode 0600") as caught:
        read_token_file(token_file(tmp_path, mode=mode))
    assert "secret" not in str(caught.value).replace("token", "")


@pytest.mark.parametrize("text", ["", " \n", "x" * 5000, "schlüssel"])
def test_token_file_without_a_token_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(TokenFileError, match="holds no token"):
        read_token_file(token_file(tmp_path, text))


def test_token_file_must_be_a_regular_file(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    with pytest.raises(TokenFileError, match="not a regular file"):
        read_token_file(fifo)
    with pytest.raises(TokenFileError, match="No such file"):
        read_token_file(tmp_path / "none")


def test_explicit_token_file_beats_the_variables(tmp_path: Path) -> None:
    path = token_file(tmp_path, "from-file")
    environ = {"SHOAL_TOKEN": "from-variable", "SHOAL_TOKEN_FILE": str(path)}
    assert find_token(environ, str(path)) == "from-file"
    assert find_token(environ) == "from-variable"
    assert find_token({"SHOAL_TOKEN": "", "SHOAL_TOKEN_FILE": str(path)}) == "from-file"
    assert find_token({}) is None


def test_own_listener_passes_the_owner_check(path: Path) -> None:
    with serving(path, echo), Client.connect(path, check_owner=True) as client:
        assert client.call("m") is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user to listen as")
def test_listener_of_another_user_is_refused_at_a_derived_path(path: Path) -> None:
    # The system notes the owner of a listener when it begins to listen.
    code = (
        "import os, socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); "
        "os.setuid(65534); s.listen(); print('up', flush=True); s.accept()"
    )
    command = ["python3", "-c", code, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/") as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "up\n"
            with pytest.raises(NotReachable, match="belongs to uid 65534"):
                Client.connect(path, check_owner=True)
        finally:
            child.kill()


# --- autostart ---------------------------------------------------------------------------------


def test_autostart_leaves_a_listening_kernel_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr("ipc.client.autostart.start_kernel", lambda *args: started.append(args))
    with serving(path, echo), Client.connect(path, autostart=True, environ={}) as client:
        client.call("m")
    assert started == []


def test_no_autostart_variable_forbids_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr("ipc.client.autostart.start_kernel", lambda *args: started.append(args))
    with pytest.raises(NotReachable):
        Client.connect(path, autostart=True, environ={"SHOAL_NO_AUTOSTART": "1"})
    assert started == []


def test_autostarted_kernel_gets_no_secret_and_no_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "shoal.py"
    path = tmp_path / "k.sock"
    report = tmp_path / "report.json"
    program.write_text(
        "import json, os, socket, sys\n"
        f"json.dump([sys.argv[1:], dict(os.environ), os.getsid(0) == os.getpid(),"
        f" [os.readlink(f'/proc/self/fd/{{n}}') for n in range(3)]], open({str(report)!r}, 'w'))\n"
        "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[3]); s.listen()\n"
        "s.accept()[0].recv(1)\ns.accept()[0].recv(1)\n"
    )
    monkeypatch.setattr("ipc.client.autostart.PROGRAM", program)
    environ = {
        "SHOAL_TOKEN": "t",
        "SHOAL_TOKEN_FILE": "f",
        "SHOAL_SESSION": "s",
        "SHOAL_CONFIG": "/c",
    }
    Client.connect(path, autostart=True, environ=environ).close()
    arguments, variables, leads, streams = json.loads(report.read_text())
    assert arguments == ["kernel", "--socket", str(path)]
    assert variables.get("SHOAL_CONFIG") == "/c"
    assert not {"SHOAL_TOKEN", "SHOAL_TOKEN_FILE", "SHOAL_SESSION"} & set(variables)
    assert leads
    assert streams == ["/dev/null"] * 3


def test_kernel_that_cannot_start_ends_in_the_error_of_the_connect(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "shoal.py"
    program.write_text("raise SystemExit(1)\n")
    monkeypatch.setattr("ipc.client.autostart.PROGRAM", program)
    monkeypatch.setattr("ipc.client.autostart.ATTEMPTS_MAX", 3)
    with pytest.raises(NotReachable, match="No such file"):
        Client.connect(path, autostart=True, environ={})


def test_half_open_socket_pair_never_blocks_close(path: Path) -> None:
    # A server that neither reads nor answers: close must not wait for it.
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    with listener:
        client = Client.connect(path)
        future = client.start("m", "x" * 1024)
        client.close()
        with pytest.raises(ClientClosed):
            future.result(WAIT_S)
