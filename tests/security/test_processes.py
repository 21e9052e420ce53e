"""Getting out of a session by processes: sockets of the daemon, signals, tracing, ports."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.peers import Ancestor, ancestors
from tests.security.attacker import SHIELDED, Fortress, run
from tests.security.conftest import HUMAN
from tests.system.daemon import Wire, alive

PYTHON = "/usr/bin/python3"

ATTACH = """
import json, os, socket, sys, time
def attach(sock):
    call = dict(jsonrpc='2.0', id=1, method='session.attach', params=dict(session='default'))
    line = json.dumps(call)
    sock.sendall(line.encode() + b'\\n')
    data = b''
    while not data.endswith(b'\\n'):
        piece = sock.recv(65536)
        if not piece:
            break
        data += piece
    answer = json.loads(data)
    return answer['result']['principal'] if 'result' in answer else answer['error']['data']['kind']
def connect():
    sock = socket.socket(socket.AF_UNIX)
    sock.connect({socket!r})
    return sock
def say(text):
    with open('said.new', 'w') as file:
        file.write(text)
    os.rename('said.new', 'said')
"""

# Ways of a program inside a session to attach without a token; each says what it was told.
WAYS_IN = {
    "plain": "say(attach(connect()))",
    "new session": "os.setsid() if os.fork() == 0 else os._exit(0)\nsay(attach(connect()))",
    "double fork": (
        "if os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
        "time.sleep(0.1)\nsay(attach(connect()))"
    ),
    "connection of a dead parent": (
        "sock = connect()\nif os.fork(): os._exit(0)\n"
        "while os.getppid() == PARENT: time.sleep(0.01)\nsay(attach(sock))"
    ),
    "connection of a dead grandchild": (
        "a, b = socket.socketpair()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    sock = connect()\n"
        "    socket.send_fds(a, [b'x'], [sock.fileno()])\n"
        "    os._exit(0)\n"
        "fds = socket.recv_fds(b, 1, 1)[1]\nos.waitpid(pid, 0)\n"
        "say(attach(socket.socket(fileno=fds[0])))"
    ),
    "many generations": (
        "for _ in range(300):\n"
        "    if os.fork(): os._exit(os.wait()[1] >> 8)\n"
        "say(attach(connect()))"
    ),
    "name of a kernel thread": (
        "open('/proc/self/comm', 'w').write('x) S 1 1')\nsay(attach(connect()))"
    ),
}


@pytest.fixture
def attacker(fortress: Fortress) -> Wire:
    wire = fortress.attached(SHIELDED, "breakout")
    wire.result("exec", {"src": f'cd "{fortress.home}/shielded"'})
    return wire


def _said(fortress: Fortress, wire: Wire, body: str, name: str = "shielded") -> str:
    """Run a program in the session and give what it said, possibly long after it ended."""
    place = fortress.home / name
    (place / "said").unlink(missing_ok=True)
    source = ATTACH.format(socket=str(fortress.socket)) + "PARENT = os.getpid()\n" + body
    (place / "way.py").write_text(source)
    answer = run(
        wire,
        f"sh {{ cd {place}; timeout 10 {PYTHON} way.py; "
        "i=0; while ! test -e said && test $i -lt 200; do sleep 0.05; i=$((i+1)); done; cat said }",
    )
    assert "result" in answer, answer
    return str(answer["result"]["render"]).strip()


@pytest.mark.parametrize("way", WAYS_IN)
def test_no_program_of_a_session_becomes_the_local_human(
    fortress: Fortress, attacker: Wire, way: str
) -> None:
    body = WAYS_IN[way]
    if way == "name of a kernel thread":
        body = body.replace("open('/proc/self/comm', 'w').write('x) S 1 1')", _RENAME)
    assert _said(fortress, attacker, body) == "token_required"


_RENAME = "import ctypes; ctypes.CDLL(None).prctl(15, b'x) S 1 1 1', 0, 0, 0)"


def test_no_program_of_a_session_is_served_at_the_agent_endpoint(
    fortress: Fortress, attacker: Wire
) -> None:
    body = (
        "import json\n"
        "sock = socket.socket(socket.AF_UNIX); sock.settimeout(10)\n"
        f"sock.connect({str(fortress.state / 'daemon.sock')!r}); lines = sock.makefile('rb')\n"
        "def ask(method, params):\n"
        "    request = {'jsonrpc': '2.0', 'id': 1, 'method': method, 'params': params}\n"
        "    sock.sendall(json.dumps(request).encode() + b'\\n')\n"
        "    return json.loads(lines.readline())['error']['data']['kind']\n"
        "first = ask('initialize', {'protocolVersion': 1, 'clientCapabilities': {}})\n"
        "second = ask('session/new', {'agent_alias': 'shell', 'session_id': 'evil'})\n"
        "say(first + ' ' + second)"
    )
    assert _said(fortress, attacker, body) == "peer_refused auth_required"


def test_a_program_of_the_local_human_may_attach(fortress: Fortress) -> None:
    wire = fortress.attached(None, "mine-alone")
    assert _said(fortress, wire, WAYS_IN["plain"], "human") == HUMAN


def test_a_guests_program_in_a_session_of_the_human_may_not_attach(fortress: Fortress) -> None:
    owner = fortress.attached(None, "visited")
    owner.result("session.share", {"session": "visited", "principals": [SHIELDED], "mode": "full"})
    guest = fortress.attached(SHIELDED, f"{HUMAN}/visited")
    assert _said(fortress, guest, WAYS_IN["plain"]) == "token_required"
    # What the owner starts from now on cannot be told apart, so it is refused as well.
    assert _said(fortress, owner, WAYS_IN["plain"], "human") == "token_required"


def test_what_outlives_its_worker_may_not_attach(fortress: Fortress) -> None:
    wire = fortress.attached(SHIELDED, "short-lived")
    place = fortress.home / "shielded"
    body = ATTACH.format(socket=str(fortress.socket)) + (
        "worker = int(sys.argv[1])\nopen('waiting', 'w').close()\n"
        "while os.path.exists(f'/proc/{worker}'): pass\n"
        "say(attach(connect()))"
    )
    (place / "said").unlink(missing_ok=True)
    (place / "survivor.py").write_text(body)
    sessions = wire.result("session.list")["sessions"]
    pid = next(entry["pid"] for entry in sessions if entry["session"] == "short-lived")
    run(
        wire,
        f"sh {{ cd {place}; setsid {PYTHON} survivor.py {pid} >/dev/null 2>&1 & "
        f"while ! test -e {place}/waiting; do sleep 0.02; done }}",
    )
    os.kill(pid, 9)
    other = fortress.attached(None, "looking")
    other.result("exec", {"src": "sh { sleep 1 }"})
    said = place / "said"
    assert not said.exists() or said.read_text() in ("token_required", "")


# -- the chain of ancestors -----------------------------------------------------------------------

PROCESSES = {9: (8, 90), 8: (5, 80), 5: (1, 50), 1: (0, 1)}


@pytest.mark.parametrize(
    ("processes", "chain"),
    [
        (PROCESSES, [(9, 90), (8, 80), (5, 50), (1, 1)]),
        # The number of a parent that ended belongs to a younger process by now.
        (PROCESSES | {8: (1, 95)}, None),
        (PROCESSES | {5: (1, 99)}, None),
        # A parent that is gone, a peer that is gone.
        ({9: (8, 90), 1: (0, 1)}, None),
        ({1: (0, 1)}, None),
        # More generations than anybody needs.
        ({pid: (pid - 1, pid) for pid in range(1, 2000)} | {9: (1999, 99)}, None),
    ],
)
def test_a_chain_is_told_only_when_it_is_certain(
    processes: dict[int, tuple[int, int]], chain: list[tuple[int, int]] | None
) -> None:
    expected = None if chain is None else [Ancestor(*entry) for entry in chain]
    assert ancestors(9, processes.get) == expected


# -- the zygote -----------------------------------------------------------------------------------


def test_the_zygote_listens_on_a_name_that_leads_nowhere(fortress: Fortress) -> None:
    names = {
        line.split()[-1]
        for line in Path("/proc/net/unix").read_text().splitlines()
        if str(fortress.directory) in line and "zygote" in line
    }
    assert names
    for name in names:
        with socket.socket(socket.AF_UNIX) as sock, pytest.raises(FileNotFoundError):
            sock.connect(name)


def test_a_session_reaches_the_zygote_by_no_descriptor(fortress: Fortress, attacker: Wire) -> None:
    body = (
        "found = []\n"
        "for pid in os.listdir('/proc'):\n"
        "    if not pid.isdigit() or int(pid) == os.getpid(): continue\n"
        "    try: fds = os.listdir(f'/proc/{pid}/fd')\n"
        "    except OSError: continue\n"
        "    for fd in fds:\n"
        "        try:\n"
        "            sock = socket.socket(socket.AF_UNIX); sock.connect(f'/proc/{pid}/fd/{fd}')\n"
        "            found.append(pid)\n"
        "        except OSError: pass\n"
        "say('found: ' + ' '.join(found))"
    )
    assert _said(fortress, attacker, body) == "found:"


# -- signals, tracing, sockets, ports -------------------------------------------------------------

OUTSIDE = {
    "signal": "os.kill({pid}, 0)",
    "kill": "os.kill({pid}, 9)",
    "group": "os.killpg(os.getpgid({pid}), 0)",
    "pidfd": "import signal; signal.pidfd_send_signal(os.pidfd_open({pid}), 0)",
    "ptrace": (
        "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"
        "if libc.ptrace(16, {pid}, 0, 0): raise OSError(ctypes.get_errno(), 'ptrace')"
    ),
    "read memory": "open('/proc/{pid}/mem', 'rb')",
    "write memory": "open('/proc/{pid}/mem', 'r+b')",
    "environment": "open('/proc/{pid}/environ').read()",
    "descriptors": "os.readlink('/proc/{pid}/fd/0')",
    "steal a descriptor": (
        "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"
        "if libc.syscall(438, os.pidfd_open({pid}), 3, 0) < 0:\n"
        "    raise OSError(ctypes.get_errno(), 'pidfd_getfd')"
    ),
    "limits": ("import resource; resource.prlimit({pid}, resource.RLIMIT_NOFILE, (1, 1))"),
    "priority": "os.setpriority(os.PRIO_PROCESS, {pid}, 19)",
    "affinity": "os.sched_setaffinity({pid}, {{0}})",
    "scheduler": "os.sched_setscheduler({pid}, os.SCHED_IDLE, os.sched_param(0))",
    "scheduling": "os.sched_setparam({pid}, os.sched_param(0))",
    "scheduling attributes": (
        "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"
        "attributes = ctypes.create_string_buffer(b'\\x30' + bytes(63))\n"
        "if libc.syscall(314, {pid}, attributes, 0):\n"
        "    raise OSError(ctypes.get_errno(), 'sched_setattr')"
    ),
    "priority of everybody": "{pid}; os.setpriority(os.PRIO_USER, 0, 19)",
    "out of memory score": "open('/proc/{pid}/oom_score_adj', 'w').write('1000')",
}


@pytest.mark.parametrize("target", ["router", "worker", "neighbour"])
@pytest.mark.parametrize("way", OUTSIDE)
def test_no_program_touches_a_process_outside(
    fortress: Fortress, attacker: Wire, way: str, target: str
) -> None:
    other = fortress.attached(None, "bystander")
    sessions = other.result("session.list", {"all": True})["sessions"]
    pids = {
        "router": fortress.pid,
        "worker": next(s["pid"] for s in sessions if s["session"] == "breakout"),
        "neighbour": next(s["pid"] for s in sessions if s["session"] == "bystander"),
    }
    pid = pids[target]
    body = "\n".join("    " + line for line in OUTSIDE[way].format(pid=pid).split("\n"))
    source = f"try:\n{body}\n    say('succeeded')\nexcept OSError as error:\n    say('refused')"
    assert _said(fortress, attacker, source) == "refused"
    assert alive(pid)


@pytest.fixture
def listener(fortress: Fortress) -> Iterator[int]:
    """A TCP port on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        stop = threading.Event()

        def accept() -> None:
            while not stop.is_set():
                try:
                    server.accept()[0].close()
                except OSError:
                    continue

        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1]
        stop.set()
        thread.join()


def test_tcp_ports_that_are_not_granted_are_closed(
    fortress: Fortress, attacker: Wire, listener: int
) -> None:
    connecting = (
        f"try:\n    socket.create_connection(('127.0.0.1', {listener}))\n    say('connected')\n"
        "except PermissionError:\n    say('refused')"
    )
    assert _said(fortress, attacker, connecting) == "refused"
    binding = (
        "try:\n    socket.create_server(('127.0.0.1', 0))\n    say('bound')\n"
        "except PermissionError:\n    say('refused')"
    )
    assert _said(fortress, attacker, binding) == "refused"


# Ways to a TCP peer that are no `connect` of a TCP socket.
OTHER_WAYS = {
    "multipath": "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect(PEER)",
    "multipath 6": "socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 262).connect(PEER6)",
    "multipath, not blocking": (
        "socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK, 262)"
        ".connect(PEER)"
    ),
    "shared memory": "socket.socket(43, socket.SOCK_STREAM, 0).connect(PEER)",
    "shared memory protocol": (
        "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256).connect(PEER)"
    ),
    "data with the first packet": "socket.socket().sendto(b'x', 0x20000000, PEER)",
    "message with the first packet": "socket.socket().sendmsg([b'x'], [], 0x20000000, PEER)",
    "ring": (
        "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"
        "if libc.syscall(425, 4, ctypes.create_string_buffer(120)) < 0:\n"
        "    raise OSError(ctypes.get_errno(), 'io_uring_setup')"
    ),
    "mapped address": "socket.socket(socket.AF_INET6).connect(('::ffff:127.0.0.1', PORT))",
    "bound before": "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.connect(PEER)",
}


@pytest.mark.parametrize("way", OTHER_WAYS)
def test_no_other_way_leads_to_a_closed_port(
    fortress: Fortress, attacker: Wire, listener: int, way: str
) -> None:
    lines = "\n".join("    " + line for line in OTHER_WAYS[way].split("\n"))
    body = (
        f"PORT = {listener}\nPEER, PEER6 = ('127.0.0.1', PORT), ('::1', PORT)\n"
        f"try:\n{lines}\n    say('connected')\n"
        "except OSError as error:\n    say(__import__('errno').errorcode[error.errno])"
    )
    # Refused by the system, not by a peer that was asked.
    refused = ("EACCES", "EPERM", "EPROTONOSUPPORT", "ENOTSUP", "EAFNOSUPPORT", "ENOSYS")
    assert _said(fortress, attacker, body) in refused


def test_the_granted_port_is_open(fortress: Fortress, attacker: Wire) -> None:
    body = (
        f"try:\n    socket.create_connection(('127.0.0.1', {fortress.port}), 2)\n"
        "    say('connected')\n"
        "except PermissionError:\n    say('refused')\nexcept OSError:\n    say('nobody there')"
    )
    assert _said(fortress, attacker, body) in ("connected", "nobody there")


def test_abstract_sockets_outside_are_out_of_reach(fortress: Fortress, attacker: Wire) -> None:
    name = f"\0shoal-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        body = (
            f"try:\n    socket.socket(socket.AF_UNIX).connect({name!r})\n    say('connected')\n"
            "except PermissionError:\n    say('refused')"
        )
        assert _said(fortress, attacker, body) == "refused"


def test_no_program_inherits_a_descriptor_of_the_worker(fortress: Fortress, attacker: Wire) -> None:
    answer = run(attacker, "sh { exec ls /proc/self/fd }")
    # The three standard ones and the directory being listed.
    assert answer["result"]["render"].split() == ["0", "1", "2", "3"]


def test_the_environment_of_a_program_holds_no_bearer(fortress: Fortress, attacker: Wire) -> None:
    answer = run(attacker, "sh { env }")
    text = answer["result"]["render"]
    assert "SHOAL_TOKEN" not in text
    assert fortress.tokens[SHIELDED][0] not in text


def test_a_terminal_is_confined_like_everything_else(fortress: Fortress, attacker: Wire) -> None:
    place = fortress.home / "shielded"
    (place / "tty.txt").unlink(missing_ok=True)
    words = [
        "-c",
        f"cat {fortress.policy_file} > {place}/tty.txt 2>&1; echo end >> {place}/tty.txt",
    ]
    attacker.result("pty.open", {"cmd": "/bin/sh", "args": words})
    run(attacker, f"sh {{ while ! grep -q end {place}/tty.txt; do sleep 0.02; done }}")
    assert "Permission denied" in (place / "tty.txt").read_text()
