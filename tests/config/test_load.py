"""Layers, merging, validation texts and environment overrides of the configuration."""

from pathlib import Path

import pytest

from supervisor.config import ConfigError, Loaded, load, lookup, with_project


class Files:
    """The three configuration files of one test, and the environment that leads to them."""

    def __init__(self, root: Path) -> None:
        self.system = root / "etc.toml"
        self.user = root / "xdg" / "shoal" / "shoal.toml"
        self.project = root / "project" / ".shoal.toml"
        self.environ = {"XDG_CONFIG_HOME": str(root / "xdg"), "HOME": str(root / "home")}

    def write(self, layer: str, text: str) -> Path:
        path: Path = getattr(self, layer)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def load(self, **more: object) -> Loaded:
        extra = {"project_from": self.project.parent, **more}
        return load(self.environ, system_file=self.system, **extra)  # type: ignore[arg-type]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_without_any_file_everything_is_default(files: Files) -> None:
    loaded = files.load()
    assert loaded.config.limits.max_frame_bytes == 16_777_216
    assert loaded.config.quotas.sessions == 256
    assert loaded.config.kernel.session == "default"
    assert [source.state for source in loaded.sources] == ["absent", "absent", "absent"]
    assert loaded.is_default("quotas.sessions")


def test_each_layer_overrides_single_keys_of_the_one_below(files: Files) -> None:
    files.write("system", "[history]\nmax_entries = 1\ndedup = false\n[render]\nwidth = 10\n")
    files.write("user", "[history]\nmax_entries = 2\n[render]\nwidth = 20\n")
    files.write("project", "[history]\nmax_entries = 3\n")
    assert files.load().config.history.max_entries == 3
    files.environ["SHOAL_HISTORY_MAX_ENTRIES"] = "4"
    loaded = files.load()
    assert loaded.config.history.max_entries == 4
    assert loaded.config.history.dedup is False
    assert loaded.config.render.width == 20
    assert files.load(options={"history.max_entries": 5}).config.history.max_entries == 5


def test_free_tables_merge_name_by_name_and_arrays_replace(files: Files) -> None:
    files.write("system", '[aliases]\na = "1"\nb = "1"\n[adapters]\ndirs = ["x", "y"]\n')
    files.write("user", '[aliases]\nb = "2"\n[adapters]\ndirs = ["z"]\n')
    config = files.load().config
    assert config.aliases == {"a": "1", "b": "2"}
    assert config.adapters.dirs == ("z",)


def test_project_file_cannot_touch_daemon_sections(files: Files) -> None:
    path = files.write("project", '[leash]\npolicy = "x"\n[quotas]\nsessions = 9\n[env]\nA = "b"\n')
    loaded = files.load()
    assert loaded.config.leash.policy is None
    assert loaded.config.quotas.sessions == 256
    assert loaded.config.env == {"A": "b"}
    assert loaded.warnings == (
        f"{path}: `leash` is ignored in a project file",
        f"{path}: `quotas` is ignored in a project file",
    )


def test_only_the_nearest_project_file_counts(files: Files) -> None:
    files.write("project", '[env]\nNEAR = "0"\nFAR = "1"\n')
    inner = files.project.parent / "a" / "b"
    inner.mkdir(parents=True)
    (inner.parent / ".shoal.toml").write_text('[env]\nNEAR = "1"\n')
    assert files.load(project_from=inner).config.env == {"NEAR": "1"}


def test_project_layer_goes_between_user_file_and_environment(files: Files) -> None:
    files.write("user", "[render]\nwidth = 20\npaging = 'auto'\n")
    files.write("project", "[render]\nwidth = 30\npaging = 'never'\n")
    files.environ["SHOAL_RENDER_PAGING"] = "auto"
    daemon = files.load(project_from=None)
    assert daemon.config.render.width == 20
    session = with_project(daemon, files.project.parent)
    assert session.config.render.width == 30
    assert session.config.render.paging == "auto"


def test_shoal_config_takes_the_place_of_the_user_file(files: Files, tmp_path: Path) -> None:
    files.write("user", "[render]\nwidth = 20\n")
    other = tmp_path / "other.toml"
    other.write_text("[history]\ndedup = false\n")
    files.environ["SHOAL_CONFIG"] = str(other)
    loaded = files.load()
    assert loaded.config.render.width is None
    assert loaded.config.history.dedup is False
    assert [(s.path, s.state) for s in loaded.sources][1:3] == [
        (str(files.user), "ignored"),
        (str(other), "used"),
    ]


def test_named_config_file_must_exist(files: Files, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        files.load(config_file=str(tmp_path / "none.toml"))


def test_directory_in_place_of_a_file_is_an_error(files: Files) -> None:
    files.user.mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"shoal\.toml: Is a directory"):
        files.load()


def test_malformed_toml_names_file_line_and_column(files: Files) -> None:
    path = files.write("user", "[render\n")
    with pytest.raises(ConfigError) as caught:
        files.load()
    assert str(caught.value).startswith(f"{path}: ")
    assert "line 1" in str(caught.value)


def test_bad_value_is_an_error_even_when_overridden(files: Files) -> None:
    files.write("system", "[history]\nmax_entries = 0\n")
    files.write("user", "[history]\nmax_entries = 5\n")
    with pytest.raises(ConfigError, match=r"history\.max_entries: must be greater than 0"):
        files.load()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernel = 1", "kernel: expected a table, found integer"),
        ("[kernel]\nenabled = 'yes'", "kernel.enabled: expected a boolean, found string"),
        ("[quotas]\nsessions = -1", "quotas.sessions: expected a non-negative integer, found "),
        (
            "[quotas]\nsessions = 1.5",
            "quotas.sessions: expected a non-negative integer, found float",
        ),
        (
            "[quotas]\nsessions = true",
            "quotas.sessions: expected a non-negative integer, found boo",
        ),
        ("[logging]\nlevel = 1979-05-27", "logging.level: expected a string, found datetime"),
        ("[adapters]\ndirs = 'x'", "adapters.dirs: expected an array of strings, found string"),
        ("[adapters]\ndirs = ['x', 2]", "adapters.dirs[1]: expected a string, found integer"),
        ("aliases = []", "aliases: expected a table of strings, found array"),
        ("[aliases]\nx = 1", "aliases.x: expected a string, found integer"),
        ("[reef]\ntools = 1", "reef.tools: expected a table, found integer"),
        ("version = 2", "version: unsupported config version 2 (expected 1)"),
        ("[editor]\nmode = 'ed'", "editor.mode: must be `emacs` or `vi`"),
        ("[render]\npaging = 'x'", "render.paging: must be `never` or `auto`"),
        ("[render]\necho = 'x'", "render.echo: must be `quiet`, `commands`, or `all`"),
        ("[aliases]\n'' = 'x'", "alias name must not be empty"),
        ("[aliases]\n'x y' = 'x'", "alias name `x y` must not contain whitespace"),
        ("[env]\n'' = 'x'", "environment variable name must not be empty"),
        ("[history]\nignore = ['a', '']", "history.ignore[1]: pattern must not be empty"),
        ("[logging]\nlevel = 'x'", "logging.level: must be error, warn, info, or debug"),
        ("[logging]\nformat = 'x'", "logging.format: must be `text` or `json`"),
        ("[journal]\nsync = 'x'", "journal.sync: must be `normal` or `full`"),
        ("[journal]\non_failure = 'x'", "journal.on_failure: must be `refuse` or `continue`"),
        ("[kernel]\npeer_uids = ['0x1']", "kernel.peer_uids[0]: must be a decimal uid"),
        ("[kernel]\nsession = ''", "kernel.session: invalid session name"),
        ("[plans]\napproval_ttl_s = 0", "plans.approval_ttl_s: must be greater than 0"),
        ("[limits]\npage_bytes = 0", "limits.page_bytes: must be greater than 0"),
        ("[limits]\nhard_cap_bytes = 1", "limits.hard_cap_bytes: must not be below limits.inline_"),
        (
            "[limits]\nmax_frame_bytes = 1",
            "limits.max_frame_bytes: must be between 64 KiB and 64 M",
        ),
        ("[metrics]\nlisten = '0.0.0.0:1'", "metrics.listen: must be `unix:/path` or a loopback"),
    ],
)
def test_refused_value_says_which_key_and_why(files: Files, text: str, message: str) -> None:
    files.write("user", text)
    with pytest.raises(ConfigError) as caught:
        files.load()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            "[kernel]\nsesion = 'x'",
            "unknown config key `kernel.sesion` (did you mean `kernel.session`?)",
        ),
        ("[history]\nzzzzzz = 1", "unknown config key `history.zzzzzz`"),
        ("histry = 1", "unknown config key `histry` (did you mean `history`?)"),
        ("[reef.options]\nhermetik = true", "(did you mean `reef.options.hermetic`?)"),
    ],
)
def test_unknown_key_is_a_warning_with_its_near_sibling(
    files: Files, text: str, warning: str
) -> None:
    path = files.write("user", text)
    [found] = files.load().warnings
    assert found.startswith(f"{path}: ")
    assert found.endswith(warning)


def test_free_keys_are_accepted(files: Files) -> None:
    files.write(
        "user",
        "[reef.tools]\nnode = { version = '1' }\n[editor.keybindings]\nctrl-t = 'undo'\n",
    )
    loaded = files.load()
    assert loaded.warnings == ()
    assert loaded.config.reef.tools == {"node": {"version": "1"}}
    assert loaded.config.editor.keybindings == {"ctrl-t": "undo"}


def test_environment_name_that_cannot_be_set_is_skipped_with_a_reason(files: Files) -> None:
    files.write("user", '[env]\n"1X" = "a"\nOK = "b"\n')
    loaded = files.load()
    assert loaded.config.env == {"OK": "b"}
    [skipped] = loaded.skipped
    assert skipped.startswith("env.1X: ")


@pytest.mark.parametrize(
    ("variable", "text", "key", "value"),
    [
        ("SHOAL_PROMPT", "p", "prompt.template", "p"),
        ("SHOAL_HISTORY", "off", "history.enabled", False),
        ("SHOAL_KERNEL", "no", "kernel.enabled", False),
        ("SHOAL_KERNEL_SESSION", "w", "kernel.session", "w"),
        ("SHOAL_SESSION", "w", "kernel.session", "w"),
        ("SHOAL_SOCKET", "/s", "kernel.socket", "/s"),
        ("SHOAL_REQUIRE_TOKEN", "on", "kernel.require_token", True),
        ("SHOAL_MAX_SESSIONS", "7", "quotas.sessions", 7),
        ("SHOAL_LOG", "debug", "logging.level", "debug"),
        ("SHOAL_LOG_FORMAT", "json", "logging.format", "json"),
        ("SHOAL_CAPTURE_CAP_BYTES", "9", "limits.capture_bytes", 9),
        ("SHOAL_CAPTURE_SPILL_CAP_BYTES", "9", "limits.spill_bytes", 9),
        ("SHOAL_LEASH_POLICY", "/p", "leash.policy", "/p"),
        ("SHOAL_COMPLETION_MENU", "False", "completion.menu", False),
        ("NO_COLOR", "", "render.color", False),
    ],
)
def test_variable_sets_its_key(
    files: Files, variable: str, text: str, key: str, value: object
) -> None:
    files.environ[variable] = text
    assert lookup(files.load().config, key) == value


def test_first_listed_variable_of_a_key_wins(files: Files) -> None:
    files.environ |= {"SHOAL_PROMPT_TEMPLATE": "first", "SHOAL_PROMPT": "second"}
    files.environ |= {"SHOAL_KERNEL_SESSION": "second", "SHOAL_SESSION": "first"}
    config = files.load().config
    assert config.prompt.template == "first"
    assert config.kernel.session == "first"


def test_no_color_wins_over_a_variable_that_asks_for_colour(files: Files) -> None:
    files.environ |= {"SHOAL_RENDER_COLOR": "1", "NO_COLOR": ""}
    assert files.load().config.render.color is False


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("SHOAL_HISTORY", "maybe", "SHOAL_HISTORY: expected true/false, got `maybe`"),
        (
            "SHOAL_RENDER_WIDTH",
            "-1",
            "SHOAL_RENDER_WIDTH: expected a non-negative integer, got `-1`",
        ),
        ("SHOAL_RENDER_WIDTH", "٣", "SHOAL_RENDER_WIDTH: expected a non-negative integer, got `٣`"),
        ("SHOAL_PROMPT", "\udcff", "SHOAL_PROMPT: value is not UTF-8"),
        ("SHOAL_LOG", "loud", "must be error, warn, info, or debug"),
        ("SHOAL_CAPTURE_CAP_BYTES", "0", "must be greater than 0"),
    ],
)
def test_bad_variable_is_named(files: Files, variable: str, text: str, message: str) -> None:
    files.environ[variable] = text
    with pytest.raises(ConfigError) as caught:
        files.load()
    assert message in str(caught.value)


def test_empty_path_variable_counts_as_unset(files: Files) -> None:
    files.write("user", '[kernel]\nsocket = "/from/file"\n')
    files.environ["SHOAL_SOCKET"] = ""
    assert files.load().config.kernel.socket == "/from/file"
