"""The page on authority: its policy is one, and it names every key and every kind."""

from __future__ import annotations

import re
from pathlib import Path

from leash.effects import KINDS
from leash.policy import Policy, parse

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "authority.md").read_text()


def test_the_policy_of_the_page_loads_without_a_warning() -> None:
    (source,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    file = parse(source, "/home/io")
    assert file.warnings == ()
    assert set(file.policies) == {"uid:1000", "agent:builder", "agent:lead"}
    local = file.of("uid:1000")
    assert local is not None and local.opaque == "allow"


def test_every_key_and_every_kind_is_on_the_page() -> None:
    keys = [name for name in Policy.__dataclass_fields__ if name != "given"]
    spelled = PAGE.replace("fs.", "fs_")
    assert [key for key in keys if f"`{key}`" not in spelled] == []
    assert [kind for kind in KINDS if f"`{kind}`" not in PAGE] == []


def test_every_module_the_page_names_exists() -> None:
    root = Path(__file__).resolve().parents[2]
    named = re.findall(r"`((?:leash|worker|supervisor)/[a-z_/]+(?:\.py)?/?)`", PAGE)
    assert named
    missing = [
        name for name in named if not (root / name).exists() and not (root / f"{name}.py").exists()
    ]
    assert missing == []
