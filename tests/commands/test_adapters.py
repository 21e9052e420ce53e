"""Adapters: schema, search order, command lines, parsers (chapter 41, part A)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.session import program
from worker.commands.adapters import Catalog, bundled, load_catalog
from worker.commands.adapters.catalog import read_folders
from worker.commands.adapters.parsers import PARSERS, parse
from worker.errors import Raised
from worker.evaluate.evaluator import Evaluator, bare_evaluator
from worker.evaluate.host import Host, nowhere
from worker.evaluate.threads import run_on_evaluator_stack
from worker.values.access import decoded_out
from worker.values.inline import inline
from worker.values.types import MISSING, Outcome, Size, Table, Value
from worker.values.types import Path as PathValue

Declared = Callable[[str], Catalog]

# Prints each of its arguments on a line of its own, then whatever PRINT names.
ECHO_ARGUMENTS = "#!/bin/sh\nfor word; do printf '%s\\n' \"<$word>\"; done\nexit ${STATUS:-0}\n"


@pytest.fixture
def declared(tmp_path: Path) -> Declared:
    """A catalog of one file with the text."""
    folder = tmp_path / "adapters"
    folder.mkdir()

    def catalog(text: str) -> Catalog:
        (folder / "file.toml").write_text(text)
        return read_folders([folder])

    return catalog


def evaluator(folder: Path, catalog: Catalog) -> Evaluator:
    """An evaluator in the folder, which is also first on its PATH."""
    ev = bare_evaluator(str(folder), Host(sink=nowhere, adapters=catalog, stderr_note=nowhere))
    ev.set_env(b"PATH", str(folder).encode() + b":" + ev.env[b"PATH"])
    return ev


def outcome(ev: Evaluator, src: str) -> Outcome:
    value = run_on_evaluator_stack(ev.evaluate_source, src, "value")
    assert isinstance(value, Outcome)
    return value


def out(ev: Evaluator, src: str) -> Value:
    return decoded_out(outcome(ev, src))


def words(ev: Evaluator, src: str) -> list[str]:
    """The arguments the echoing program got."""
    stdout = outcome(ev, src).stdout
    assert isinstance(stdout, bytes)
    return [line[1:-1] for line in stdout.decode().splitlines()]


# -- files -------------------------------------------------------------------------------------

REASONS = [
    ("[cmd]\nx = 1", "cmd.x: must be a table"),
    ("[cmd.x]\nsub.a = 1", "cmd.x: subcommand must be a table"),
    ('[cmd.x]\nclass = "odd"', 'cmd.x: unknown class "odd"'),
    (
        '[cmd.x]\nclass = "interpreter"\ninvoke_payload = "fax"',
        'cmd.x: unknown invoke_payload "fax"',
    ),
    (
        '[cmd.x]\ninvoke_payload = "arg"',
        'cmd.x: invoke_payload may only be declared on a class = "interpreter" adapter',
    ),
    ("[cmd.x]\nparams.a = 1", "cmd.x: parameter type must be a string"),
    ('[cmd.x]\nparams.a = "text"', 'cmd.x: unknown parameter type "text"'),
    ('[cmd.x]\nparams.a = "list<text>"', 'cmd.x: unknown parameter type "list<text>"'),
    (
        '[cmd.x]\npositional = ["a"]',
        'cmd.x: positional parameter "a" is not declared in params',
    ),
    ("[cmd.x]\nflags.short.a = 1", "cmd.x: short flag target must be a string"),
    (
        '[cmd.x]\nflags.short.a = "all"',
        'cmd.x: short flag targets undeclared parameter "all"',
    ),
    ('[cmd.x]\nconsumed = ["a"]', 'cmd.x: consumed names undeclared parameter "a"'),
    ('[cmd.x]\noutput.parse = "yaml"', 'cmd.x: unknown output parser "yaml"'),
    ('[cmd.x.sub.y]\noutput.parse = "yaml"', 'cmd.x: unknown output parser "yaml"'),
]


@pytest.mark.parametrize("text, reason", REASONS, ids=[reason for _, reason in REASONS])
def test_bad_commands_are_dropped_with_a_reason_and_siblings_stay(
    declared: Declared, tmp_path: Path, text: str, reason: str
) -> None:
    catalog = declared(text + "\n[cmd.good]\n")
    assert catalog.warnings == (f"{tmp_path}/adapters/file.toml: {reason}",)
    assert catalog.heads() == ["good"]


def test_unknown_keys_and_lists_of_other_types_count_as_absent(declared: Declared) -> None:
    catalog = declared('[cmd.x]\ncolour = 1\ninvoke = ["a", 1]\nok_codes = [true]\nbin = 7\n')
    assert catalog.warnings == ()
    adapter = catalog.lookup("x")
    assert adapter is not None
    assert (adapter.bin, adapter.top.invoke, adapter.command.ok_codes) == ("x", None, (0,))


@pytest.mark.parametrize("text", ["", "[other]\n", "[cmd]\n"])
def test_a_file_without_commands_is_named(declared: Declared, text: str) -> None:
    [warning] = declared(text).warnings
    assert warning.endswith("file.toml: missing [cmd.<name>] table")


def test_files_that_are_no_toml_and_folders_that_are_none_are_named(
    declared: Declared, tmp_path: Path
) -> None:
    [warning] = declared("= nonsense").warnings
    assert "file.toml: " in warning
    [missing] = read_folders([tmp_path / "none"]).warnings
    assert missing == f"{tmp_path}/none: No such file or directory"


def test_a_name_seen_before_in_a_folder_is_replaced_with_a_warning(tmp_path: Path) -> None:
    for name, program_name in (("a.toml", "first"), ("b.toml", "second")):
        (tmp_path / name).write_text(f'[cmd.x]\nbin = "{program_name}"\n')
    catalog = read_folders([tmp_path])
    assert catalog.warnings == (f"{tmp_path}/b.toml: duplicate adapter cmd.x; later file wins",)
    found = catalog.lookup("x")
    assert found is not None and found.bin == "second"


def test_later_folders_replace_commands_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('[cmd.git]\nbin = "mygit"\n')
    catalog = load_catalog({"adapters": {"dirs": [str(tmp_path)]}}, {})
    git = catalog.lookup("git")
    assert git is not None
    assert (git.bin, dict(git.subcommands), catalog.warnings) == ("mygit", {}, ())
    assert set(catalog.heads()) == set(bundled().heads())


def test_the_search_path_variable_replaces_everything(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("[cmd.mine]\n")
    environ = {"SHOAL_ADAPTER_PATH": f"{tmp_path}"}
    assert load_catalog({}, environ).heads() == ["mine"]
    assert load_catalog({}, {"SHOAL_ADAPTER_PATH": ""}).heads() == bundled().heads()
    disabled = {"adapters": {"enabled": False}}
    assert load_catalog(disabled, environ).heads() == []


def test_the_pack_is_whole() -> None:
    assert bundled().warnings == ()
    names = """aws bash brew bun cargo curl deno df docker du env fd findmnt gcloud gh git go helm
    ip jj journalctl jq kubectl lsblk lscpu node npm pip pnpm podman ps python rg ruby rustup
    sqlite3 ss stat systemctl systemd-analyze tar terraform unzip uv vmstat who yarn yq zip"""
    assert bundled().heads() == names.split()


# -- command lines -----------------------------------------------------------------------------

TOOL = """
[cmd.tool]
invoke = ["top"]
params = { n = "int?", file_name = "path?", all = "bool", mask = "glob", quiet = "bool",
  tags = "list<str>", wait = "duration", at = "time", big = "size", ratio = "float",
  kb = "size_kb" }
positional = ["mask", "n"]
flags.short = { a = "all", q = "quiet" }
consumed = ["quiet"]

[cmd.tool.sub.plain]

[cmd.tool.sub.two_words]
invoke = ["two", "words"]
params = { name = "str" }
positional = ["name"]
consumed = ["name"]
""".replace(",\n  ", ", ")

LINES = [
    ("tool", ["top"]),
    ("tool plain x", ["plain", "x"]),
    ("tool two_words gone x", ["two", "words", "x"]),
    ("tool --n=5", ["top", "-n", "5"]),
    ("tool --n 5", ["top", "-n", "5"]),
    ("tool --file-name ./x", ["top", "--file-name", "./x"]),
    ('tool --file-name="a b"', ["top", "--file-name", "a b"]),
    ("tool --all", ["top", "--all"]),
    ("tool -aq", ["top", "-a"]),
    ("tool -q", ["top"]),
    ("tool --quiet", ["top"]),
    ("tool -a -- --", ["top", "-a", "--", "--"]),
    ("tool *.none", ["top", "*.none"]),
    ("tool m 7 rest", ["top", "m", "7", "rest"]),
    ("tool --wait=5s --big=2kb", ["top", "--wait", "5s", "--big", "2kb"]),
    ("tool --ratio=0.5", ["top", "--ratio", "0.5"]),
    ("tool --big=(2kb)", ["top", "--big", "2000"]),
    ("tool --tags=x --tags y", ["top", "--tags", "x", "--tags", "y"]),
    ("tool -", ["top", "-"]),
]  # fmt: skip


@pytest.fixture
def tool(declared: Declared, tmp_path: Path) -> Evaluator:
    program(tmp_path, "tool", ECHO_ARGUMENTS)
    return evaluator(tmp_path, declared(TOOL))


@pytest.mark.parametrize("src, expected", LINES)
def test_arguments_become_words(tool: Evaluator, src: str, expected: list[str]) -> None:
    assert words(tool, src) == expected


REFUSED = [
    ("tool --nope", "tool: unknown flag --nope; expected --n <int?>, --file-name <path?>, "),
    ("tool -x", "tool: unknown short flag -x"),
    ("tool -ax", "tool: unknown short flag -x"),
    ("tool --n", "--n requires a value"),
    ("tool --n=five", "expected int, found str"),
    ("tool --n=99999999999999999999", "expected int, found str"),
    ("tool m five", "expected int, found str"),
    ("tool m *.txt", "expected int, found glob"),
    ("tool --file-name=(3)", "expected path, found int"),
    ("tool --all=(3)", "expected bool, found int"),
    ("tool --wait=soon", "expected duration, found str"),
    ("tool --at=(3)", "expected time, found int"),
    ("tool --kb=3", "expected size_kb, found str"),
    ("tool plain --any", "tool: unknown flag --any; expected "),
]


@pytest.mark.parametrize("src, message", REFUSED, ids=[src for src, _ in REFUSED])
def test_arguments_that_do_not_fit_are_refused(tool: Evaluator, src: str, message: str) -> None:
    with pytest.raises(Raised) as caught:
        words(tool, src)
    assert (caught.value.error.code, caught.value.error.span is not None) == ("arg_error", True)
    assert caught.value.error.msg.startswith(message)


def test_a_list_is_no_word(tool: Evaluator) -> None:
    with pytest.raises(Raised) as caught:
        words(tool, "tool --tags=([1, 2])")
    assert caught.value.error.code == "type_error"


def test_a_glob_at_an_undeclared_place_expands(tool: Evaluator, tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    (tmp_path / "b.txt").touch()
    assert words(tool, "tool m 1 *.txt") == [
        "top",
        "m",
        "1",
        f"{tmp_path}/a.txt",
        f"{tmp_path}/b.txt",
    ]


def test_a_forced_head_and_run_know_no_adapter(tool: Evaluator) -> None:
    assert words(tool, "^tool --nope -x") == ["--nope", "-x"]
    assert words(tool, 'run("tool", "--nope")') == ["--nope"]
    assert words(tool, '"".feed(tool --nope)') == ["--nope"]


def test_env_prefix_and_redirects_work_as_for_any_program(
    declared: Declared, tmp_path: Path
) -> None:
    program(tmp_path, "tool", '#!/bin/sh\necho "$WORD"; cat\n')
    (tmp_path / "in.txt").write_text("from file\n")
    ev = evaluator(tmp_path, declared("[cmd.tool]\n"))
    assert out(ev, "WORD=given tool < in.txt") == "given\nfrom file"
    outcome(ev, "tool > out.txt")
    assert (tmp_path / "out.txt").read_text() == "\n"


def test_declared_codes_are_ok_and_parsing_does_not_look_at_them(
    declared: Declared, tmp_path: Path
) -> None:
    program(tmp_path, "tool", ECHO_ARGUMENTS)
    text = (
        '[cmd.tool]\nok_codes = [0, 3]\noutput.parse = "lines"\n'
        "[cmd.tool.sub.strict]\nok_codes = [4]\n[cmd.tool.sub.same]\n"
    )
    ev = evaluator(tmp_path, declared(text))
    assert outcome(ev, "STATUS=3 tool").ok
    assert not outcome(ev, "STATUS=3 tool strict").ok
    assert outcome(ev, "STATUS=4 tool strict").ok
    assert outcome(ev, "STATUS=3 tool same").ok
    failed = outcome(ev, "STATUS=5 tool x")
    assert (failed.ok, failed.structured) == (False, ["<x>"])
    with pytest.raises(Raised) as caught:
        run_on_evaluator_stack(ev.evaluate_source, "(STATUS=5 tool x).out", "value")
    assert caught.value.error.code == "cmd_failed"


def test_interpreters_without_params_get_what_was_typed(declared: Declared, tmp_path: Path) -> None:
    program(tmp_path, "tool", ECHO_ARGUMENTS)
    text = '[cmd.speak]\nbin = "tool"\nclass = "interpreter"\ninvoke = ["-c"]\n'
    ev = evaluator(tmp_path, declared(text))
    assert words(ev, "speak --any=1 -xyz file") == ["--any=1", "-xyz", "file"]


def test_a_terminal_program_always_gets_a_terminal(declared: Declared, tmp_path: Path) -> None:
    program(tmp_path, "tool", "#!/bin/sh\ntest -t 1 && echo terminal\n")
    ev = evaluator(tmp_path, declared('[cmd.tool]\nclass = "tui"\n'))
    assert "terminal" in str(out(ev, "tool"))


def test_a_terminal_program_reads_a_redirected_file(declared: Declared, tmp_path: Path) -> None:
    program(tmp_path, "tool", "#!/bin/sh\ntest -t 0 || test -t 1 && cat && tty < /dev/tty\n")
    (tmp_path / "input").write_text("from the file\n")
    ev = evaluator(tmp_path, declared('[cmd.tool]\nclass = "tui"\n'))
    said = str(out(ev, "tool < input > output"))
    assert said.startswith("from the file")
    assert "/dev/" in said
    assert (tmp_path / "output").read_bytes().startswith(b"from the file")


def test_a_refused_redirect_keeps_a_terminal_program_from_starting(
    declared: Declared, tmp_path: Path
) -> None:
    program(tmp_path, "tool", "#!/bin/sh\ntouch started\n")
    ev = evaluator(tmp_path, declared('[cmd.tool]\nclass = "tui"\n'))
    for source, code in (("tool < nowhere", "not_found"), ("tool < (5)", "arg_error")):
        with pytest.raises(Raised) as caught:
            outcome(ev, source)
        assert caught.value.error.code == code
    assert not (tmp_path / "started").exists()


def test_the_outcome_shows_the_program_and_a_missing_one_is_not_found(
    declared: Declared, tmp_path: Path
) -> None:
    program(tmp_path, "tool", ECHO_ARGUMENTS)
    ev = evaluator(tmp_path, declared('[cmd.nick]\nbin = "tool"\n[cmd.gone]\nbin = "no-such"\n'))
    assert outcome(ev, "nick a b").cmd == "tool a b"
    with pytest.raises(Raised) as caught:
        outcome(ev, "gone")
    assert caught.value.error.code == "not_found"
    with pytest.raises(Raised) as near:
        outcome(ev, "nicl")
    assert near.value.error.hint == "did you mean 'nick'?"


# -- parsers -----------------------------------------------------------------------------------

HINT = "table<{name: str, n: int?, free: size_kb}>"
# Parser, output, hint, the inline form of the result; None where the output does not fit.
PARSED: list[tuple[str, bytes, str | None, str | None]] = [
    ("none", b"[1]", None, None),
    ("json", b' {"b": 1, "a": [{"x": 1}]} \n', None, '{a: [{x: 1}], b: 1}'),
    ("json", b"12\n", None, "12"),
    ("json", b"{} {}", None, None),
    ("json", b"", None, None),
    ("ndjson", b'{"a": 1}\n\n{"a": 2}\n', None, "[{a: 1}, {a: 2}]"),
    ("ndjson", b'{"a": 1}\n2\n', None, "[{a: 1}, 2]"),
    ("ndjson", b'{"a": 1}\nbroken\n', None, None),
    ("lines", b"a\r\nb\n\nc", None, '["a", "b", "", "c"]'),
    ("lines", b"", None, "[]"),
    ("lines", b"/x\ny\n", "list<path>", "[/x, y]"),
    ("lines", b"bad \xff\n", None, None),
    ("kv", b"A=1=2\n c : d \n", None, '{A: "1=2", c: "d"}'),
    ("kv", b"neither\n", None, None),
    ("csv", b'a,b\r\n1,"x, ""y""\nz"\r\n', None, '[{a: "1", b: "x, \\"y\\"\\nz"}]'),
    ("csv", b"n,b\n1,2\n", "table<{n: int}>", '[{n: 1, b: "2"}]'),
    ("csv", b"a,b\n1\n", None, None),
    ("csv", b'a\n"open\n', None, None),
    ("csv", b"", None, None),
    ("csv", b"a,b\n", None, "[]"),
    ("tsv", b"a\tb c\n1\t2\n", None, '[{a: "1", "b c": "2"}]'),
    ("tsv-headerless", b"x\t1\t2\n\ny\t2\t3\n", HINT,
     '[{name: "x", n: 1, free: 2.05kb}, {name: "y", n: 2, free: 3.07kb}]'),
    ("tsv-headerless", b"x\t1\n", HINT, None),
    ("tsv-headerless", b"x\tone\t2\n", HINT, None),
    ("tsv-headerless", b"x\t1\t2\n", "record", None),
    ("cols", b"HEAD\n a  1 4 \n\n", HINT, '[{name: "a", n: 1, free: 4.1kb}]'),
    ("cols", b"HEAD\na 1\n", HINT, None),
    ("cols", b"H\n1 long  name here\n", "table<{n: int, s: str}>", '[{n: 1, s: "long name here"}]'),
    ("cols2", b"H\nH\n1 x\n", "table<{n: int, s: str}>", '[{n: 1, s: "x"}]'),
    ("z-records", b"", "table<{a: str, b: str}>", "[]"),
    ("z-records", b"\0\0", "table<{a: str, b: str}>", "[]"),
    ("z-records", b"1\x002\x003\x00", "table<{a: str, b: str}>",
     '[{a: "1", b: "2"}, {a: "3", b: ""}]'),
    ("z-records", b"1\x002\x00", "table<{a: str, b: str}>", '[{a: "1", b: "2"}]'),
    ("z-records", b"1\x002\x003", "table<{a: str, b: str}>", None),
    ("z-records", b"1", None, None),
    ("porcelain-v2", b"", None, "[]"),
    ("porcelain-v2", b"u UU N... 1 1 1 1 a b c f\n", None, None),
    ("porcelain-v2", b"?? short\n", None, None),
    ("porcelain-v2", b"1 .M too few\n", None, None),
]  # fmt: skip


@pytest.mark.parametrize("name, data, hint, expected", PARSED)
def test_output_is_parsed_or_left_alone(
    name: str, data: bytes, hint: str | None, expected: str | None
) -> None:
    value = parse(name, data, hint)
    assert (None if value is MISSING else inline(value)) == expected


def test_every_parser_has_samples() -> None:
    assert {name for name, *_ in PARSED} == set(PARSERS)


def test_status_of_git_in_its_second_form() -> None:
    text = (
        b"# branch.head main\n"
        b"1 .M N... 100644 100644 100644 aaaa bbbb a file.txt\n"
        b"1 A. N... 000000 100644 100644 aaaa bbbb new\n"
        b"1 D. N... 100644 000000 000000 aaaa bbbb gone\n"
        b"2 R. N... 100644 100644 100644 aaaa bbbb R100 to name\tfrom name\n"
        b"? untracked one\n"
        b"! ignored\n"
    )
    table = parse("porcelain-v2", text, None)
    assert isinstance(table, Table)
    rows: list[dict[str, Any]] = table.rows
    assert [(row["status"], row["state"], row["path"].raw) for row in rows] == [
        (".M", "modified", "a file.txt"),
        ("A.", "added", "new"),
        ("D.", "deleted", "gone"),
        ("R.", "renamed", "to name"),
        ("?", "untracked", "untracked one"),
        ("!", "ignored", "ignored"),
    ]
    assert [row.get("orig") for row in rows].count(None) == 5
    assert rows[3]["orig"] == PathValue("from name")


def test_output_that_does_not_fit_is_decoded_as_usual(declared: Declared, tmp_path: Path) -> None:
    program(tmp_path, "tool", "#!/bin/sh\necho '[1, 2]'\n")
    text = '[cmd.tool]\noutput = { parse = "cols", type = "table<{a: int, b: int}>" }\n'
    program(tmp_path, "other", "#!/bin/sh\necho head; echo words\n")
    ev = evaluator(tmp_path, declared(text + text.replace("cmd.tool", "cmd.other")))
    assert inline(out(ev, "other")) == '"head\\nwords"'
    assert isinstance(out(ev, "tool"), Table)


# -- real programs -----------------------------------------------------------------------------


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed")


@pytest.fixture
def packed(tmp_path: Path) -> Evaluator:
    return evaluator(tmp_path, bundled())


@needs("git")
def test_git_in_a_repository(packed: Evaluator, tmp_path: Path) -> None:
    for src in (
        "^git init -q -b main",
        "^git config user.email a@example.org",
        "^git config user.name Tester",
    ):
        assert outcome(packed, src).ok
    (tmp_path / "a file.txt").write_text("one\n")
    assert (
        inline(out(packed, "git status"))
        == '[{status: "?", state: "untracked", path: "a file.txt"}]'
    )
    assert outcome(packed, "git add --all").ok
    assert outcome(packed, "git commit --message 'first, with | signs'").ok
    assert inline(out(packed, "git status -sb")) == "[]"
    log = out(packed, "git log --n 1")
    assert isinstance(log, Table)
    [row] = log.rows
    assert list(row) == ["hash", "author", "date", "subject"]
    assert (row["author"], row["subject"]) == ("Tester", "first, with | signs")
    assert out(packed, "git branch") == ["* main"]
    (tmp_path / "a file.txt").write_text("two\n")
    diff = out(packed, "git diff --name-only")
    assert diff == ["a file.txt"]
    assert outcome(packed, "git stash_push -u --message wip").ok
    stashes = out(packed, "git stash_list")
    assert isinstance(stashes, list) and "wip" in str(stashes[0])


COLUMNS = [
    ("ps", "ps", ["pid", "ppid", "user", "cpu", "mem", "command"]),
    ("df", "df", ["filesystem", "size", "used", "avail", "use_pct", "mounted"]),
    ("du", "du -sh", ["size", "path"]),
    ("ss", "ss", ["netid", "state", "recv_q", "send_q", "local", "peer"]),
]


@pytest.mark.parametrize("name, src, columns", COLUMNS, ids=[name for name, *_ in COLUMNS])
def test_tables_of_real_programs(
    packed: Evaluator, name: str, src: str, columns: list[str]
) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    table = out(packed, src)
    assert isinstance(table, Table)
    assert all(list(row) == columns for row in table.rows)


@needs("df")
def test_sizes_of_df_are_bytes(packed: Evaluator) -> None:
    table = out(packed, "df .")
    assert isinstance(table, Table)
    [row] = table.rows
    size = row["size"]
    assert isinstance(size, Size)
    assert size.bytes == 0 or size.bytes >= 1024


@needs("jq")
def test_jq_gives_the_value_its_filter_prints(packed: Evaluator, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"b": [1, 2]}')
    assert inline(out(packed, "jq .b x.json")) == "[1, 2]"
    assert out(packed, "jq -r '.b | join(\"-\")' x.json") == "1-2"
    assert inline(out(packed, "jq '.b[]' x.json")) == '"1\\n2"'


@needs("sqlite3")
def test_sqlite_rows_are_a_table(packed: Evaluator) -> None:
    assert inline(out(packed, "sqlite3 x.db 'select 1 as a, null as b'")) == "[{a: 1, b: null}]"


@needs("tar")
def test_tar_keeps_its_text(packed: Evaluator, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert outcome(packed, "tar -cf x.tar a").ok
    assert out(packed, "tar -tf x.tar") == "a"


@needs("lsblk")
def test_lsblk_is_a_record(packed: Evaluator) -> None:
    result = outcome(packed, "lsblk")
    if result.ok:
        record = decoded_out(result)
        assert isinstance(record, dict) and "blockdevices" in record


# Samples of programs that are not installed everywhere, as they print them.
SAMPLES = [
    ("docker", "ps", b"1a2b\tnginx:1\tUp 2 days (healthy)\tweb\n",
     '[{"CONTAINER ID": "1a2b", IMAGE: "nginx:1", STATUS: "Up 2 days (healthy)", NAMES: "web"}]'),
    ("docker", "images", b"nginx\t1\t1a2b\t10MB\n",
     '[{REPOSITORY: "nginx", TAG: "1", "IMAGE ID": "1a2b", SIZE: "10MB"}]'),
    ("rg", "", b'{"type":"begin","data":{"path":{"text":"a"}}}\n{"type":"end","data":{}}\n',
     '[{data: {path: {text: "a"}}, type: "begin"}, {data: {}, type: "end"}]'),
    ("systemctl", "", b'[{"unit":"a.service","load":"loaded"}]',
     '[{load: "loaded", unit: "a.service"}]'),
    ("fd", "", b"./a\nb/c\n", "[./a, b/c]"),
    ("who", "", b"NAME LINE TIME COMMENT\nann pts/0 2026-01-02 10:11 (host)\n",
     '[{user: "ann", line: "pts/0", date: "2026-01-02", time: "10:11 (host)"}]'),
    ("vmstat", "", b"procs\n r b\n" + b" ".join(b"%d" % n for n in range(18)) + b"\n", "18"),
    ("unzip", "list", b"a\nd/\n", "[a, d/]"),
    ("stat", "", b"12\t1700000000\tregular file\tx\n",
     '[{size_bytes: 12, mtime: 1700000000, kind: "regular file", name: x}]'),
    ("env", "", b"A=1\nB=x=y\n", '{A: "1", B: "x=y"}'),
]  # fmt: skip


@pytest.mark.parametrize(
    "head, sub, data, expected", SAMPLES, ids=[f"{h} {s}" for h, s, *_ in SAMPLES]
)
def test_samples_of_the_pack_parse(head: str, sub: str, data: bytes, expected: str) -> None:
    adapter = bundled().lookup(head)
    assert adapter is not None
    specification = adapter.subcommands[sub] if sub else adapter.top
    value = parse(specification.parser, data, specification.hint)
    if head == "vmstat":
        assert isinstance(value, Table)
        assert len(value.rows[0]) == int(expected)
        assert value.rows[0]["free"] == Size(3 * 1024)
    else:
        assert inline(value) == expected
