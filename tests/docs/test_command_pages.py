"""The pages about commands, adapters and tools are true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.arrows.rules import ROOT
from worker.commands.adapters.catalog import read_folders
from worker.commands.adapters.parsers import PARSERS
from worker.commands.adapters.schema import CLASSES, PARAMETER_TYPES
from worker.errors import Raised
from worker.evaluate.evaluator import Evaluator, bare_evaluator
from worker.evaluate.host import Host, nowhere
from worker.evaluate.threads import run_on_evaluator_stack
from worker.language import ParseContext, parse
from worker.values.inline import inline

PAGES = ("commands", "adapters", "reef")
ADAPTERS = (ROOT / "docs" / "adapters.md").read_text()
_EXAMPLE = re.compile(r"^```\w+ example=(\S+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"^```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([\w./-]+\.md)\)")
EXAMPLES = dict(_EXAMPLE.findall(ADAPTERS))


def described(folder: Path) -> Evaluator:
    """An evaluator with the program of the page and its adapter."""
    (folder / "tally").write_text(EXAMPLES["tally"])
    (folder / "tally").chmod(0o755)
    (folder / "tally.toml").write_text(EXAMPLES["tally.toml"])
    catalog = read_folders([folder])
    assert catalog.warnings == ()
    evaluator = bare_evaluator(str(folder), Host(sink=nowhere, adapters=catalog))
    evaluator.set_env(b"PATH", str(folder).encode() + b":" + evaluator.env[b"PATH"])
    return evaluator


def answer(evaluator: Evaluator, src: str) -> str:
    try:
        return inline(run_on_evaluator_stack(evaluator.evaluate_source, src, "value"))
    except Raised as failure:
        return f"error {failure.error.code}: {failure.error.msg}"


@pytest.mark.parametrize("line", EXAMPLES["session"].splitlines())
def test_every_line_of_the_adapter_example_is_true(tmp_path: Path, line: str) -> None:
    src, _, expected = line.partition("#")
    assert answer(described(tmp_path), src.strip()).startswith(expected.strip())


def test_the_adapter_page_names_every_parser_type_and_class() -> None:
    for name in (*PARSERS, *PARAMETER_TYPES, *CLASSES):
        assert f"`{name}`" in ADAPTERS, name


@pytest.mark.parametrize("page", PAGES)
def test_every_line_of_source_on_the_pages_parses(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    for block in _BLOCK.findall(text):
        for line in block.splitlines():
            parse(line, ParseContext())


@pytest.mark.parametrize("page", PAGES)
def test_links_between_the_pages_lead_somewhere(page: str) -> None:
    for target in _LINK.findall((ROOT / "docs" / f"{page}.md").read_text()):
        assert (ROOT / "docs" / target).exists(), target
