"""The security page: its policy is one, and grants what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leash.confinement import confinement
from leash.policy import PolicyFile, parse
from leash.verdict import ALLOW, APPROVAL, DENY, Standing, judge

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
HOME = "/home/somebody"


@pytest.fixture
def policies() -> PolicyFile:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return parse(text, HOME)


def test_the_policy_of_the_page_has_no_warnings(policies: PolicyFile) -> None:
    assert policies.warnings == ()
    assert set(policies.policies) == {"uid:1000", "agent:builder", "agent:reviewer"}


@pytest.mark.parametrize(
    ("effect", "reversibility", "word"),
    [
        ({"kind": "fs_write", "paths": [f"{HOME}/agents/builder/x"]}, "reversible", ALLOW),
        ({"kind": "fs_delete", "paths": [f"{HOME}/agents/builder/x"]}, "reversible", APPROVAL),
        ({"kind": "fs_read", "paths": [f"{HOME}/.ssh/id"]}, "reversible", DENY),
        ({"kind": "opaque"}, "irreversible", APPROVAL),
        ({"kind": "secret_use", "names": ["K"]}, "reversible", DENY),
        ({"kind": "net_connect", "host": "pypi.org", "port": 443}, "irreversible", APPROVAL),
        ({"kind": "net_connect", "host": "evil.test", "port": 443}, "irreversible", DENY),
    ],
)
def test_the_agent_of_the_page_gets_what_the_page_says(
    policies: PolicyFile, effect: dict[str, object], reversibility: str, word: str
) -> None:
    standing = Standing("agent:builder", policies.of("agent:builder"))
    assert judge(standing, [effect], reversibility).word == word


def test_you_are_not_confined_and_the_agent_is(policies: PolicyFile) -> None:
    human = Standing("uid:1000", policies.of("uid:1000"))
    agent = Standing("agent:builder", policies.of("agent:builder"))
    assert human.unrestricted
    assert not confinement(human).any
    assert confinement(agent).filesystem
    assert confinement(agent).connect.held == (443,)
    assert confinement(agent).hermetic
