"""The typed configuration of daemon and clients (chapter 81, section 6).

    loaded = load(os.environ, config_file=None, options={"quotas.sessions": 8})
    loaded.config.limits.max_frame_bytes

Failure: every function here raises `ConfigError`, whose text is for the user.
"""

from supervisor.config.load import (
    PROJECT_FILE,
    SYSTEM_FILE,
    Loaded,
    Source,
    find_project_file,
    load,
    with_project,
)
from supervisor.config.schema import KEYS, Config, Key, Reload, Shape, lookup, shell_snapshot
from supervisor.config.validate import ConfigError

__all__ = [
    "KEYS",
    "PROJECT_FILE",
    "SYSTEM_FILE",
    "Config",
    "ConfigError",
    "Key",
    "Loaded",
    "Reload",
    "Shape",
    "Source",
    "find_project_file",
    "load",
    "lookup",
    "shell_snapshot",
    "with_project",
]
