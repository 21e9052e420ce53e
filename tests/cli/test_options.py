"""The grammar of command lines."""

from __future__ import annotations

import pytest

from supervisor.cli.options import (
    Arguments,
    Command,
    HelpAsked,
    Operand,
    Option,
    UsageError,
    parse,
)
from supervisor.cli.readers import one_of, unsigned

LEAF = Command(
    "leaf",
    "for tests",
    options=(
        Option("--name", "text", value="TEXT"),
        Option("--count", "number", value="N", read=unsigned),
        Option("--flag", "flag"),
        Option("--many", "repeats", value="X", repeat=True),
        Option("--file", "short too", value="FILE", aliases=("-f",)),
        Option("--kind", "word", value="K", read=one_of("a", "b")),
        Option("--own", "own messages", value="N", read=unsigned, missing="--own wants one"),
    ),
    operands=(Operand("FIRST", "one"), Operand("REST", "more", required=False)),
)
GROUP = Command(
    "group",
    "for tests",
    options=(Option("--json", "json"), Option("--dir", "dir", value="PATH")),
    commands=(
        Command("one", "first", options=(Option("--limit", "n", value="N", read=unsigned),)),
        Command("two", "second", operands=(Operand("ID", "id", missing="two wants an ID"),)),
    ),
    default="one",
    unknown_command="no such thing: {}",
)


IMPLYING = Command(
    "implying",
    "for tests",
    commands=(Command("follow", "first", operands=(Operand("NAME", "name"),)),),
    implied="follow",
)


def test_a_word_that_is_no_subcommand_may_be_an_operand_of_the_implied_one() -> None:
    for words in (["follow", "x"], ["x"]):
        found = parse(IMPLYING, words)
        assert (found.command.name, found.operands) == ("follow", ["x"])


def leaf(*words: str) -> Arguments:
    return parse(LEAF, words)


@pytest.mark.parametrize(
    "words", [("--name", "x y", "op"), ("--name=x y", "op"), ("op", "--name=x y")]
)
def test_value_follows_or_is_attached_and_order_is_free(words: tuple[str, ...]) -> None:
    found = leaf(*words)
    assert (found.text("name"), found.operands) == ("x y", ["op"])


def test_attached_value_may_be_empty_or_hold_an_equals_sign() -> None:
    assert leaf("--name=", "op").text("name") == ""
    assert leaf("--name=a=b", "op").text("name") == "a=b"


def test_value_may_look_like_an_option() -> None:
    assert leaf("--name", "--flag", "op").text("name") == "--flag"


def test_double_dash_ends_the_options() -> None:
    found = leaf("--flag", "--", "--name", "-x")
    assert found.flag("flag")
    assert found.operands == ["--name", "-x"]


def test_single_dash_is_an_operand() -> None:
    assert leaf("-").operands == ["-"]


def test_repeatable_option_collects_and_others_take_the_last() -> None:
    found = leaf("--many", "1", "--many=2", "--name", "a", "--name", "b", "op")
    assert found.many("many") == ["1", "2"]
    assert found.text("name") == "b"


def test_short_spelling_means_the_same_key() -> None:
    assert leaf("-f", "x", "op").text("file") == "x"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--nope", "op"), "unknown option --nope"),
        (("-x", "op"), "unknown option -x"),
        (("op", "--name"), "--name requires a value"),
        (("--flag=1", "op"), "--flag takes no value"),
        (("--count", "x", "op"), "--count: expected a non-negative integer, got `x`"),
        (("--count=-1", "op"), "--count: expected a non-negative integer, got `-1`"),
        (("--kind", "c", "op"), "--kind: must be a or b, got `c`"),
        (("op", "--own"), "--own wants one"),
        ((), "FIRST is missing"),
        (("a", "b", "c"), "unexpected operand `c`"),
    ],
)
def test_line_that_does_not_fit_is_a_usage_error(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        leaf(*words)
    assert str(caught.value) == message
    assert caught.value.command is LEAF


@pytest.mark.parametrize(
    "words", [("-h",), ("op", "--help"), ("--flag", "-h", "surplus", "x", "y")]
)
def test_help_wins_over_everything_after_it(words: tuple[str, ...]) -> None:
    with pytest.raises(HelpAsked) as caught:
        leaf(*words)
    assert caught.value.command is LEAF


def test_help_after_the_end_of_options_is_an_operand() -> None:
    assert leaf("--", "-h").operands == ["-h"]


@pytest.mark.parametrize(
    "words", [("--json", "two", "7"), ("two", "--json", "7"), ("two", "7", "--json")]
)
def test_group_option_may_stand_anywhere(words: tuple[str, ...]) -> None:
    found = parse(GROUP, words)
    assert found.command.name == "two"
    assert (found.flag("json"), found.operands) == (True, ["7"])


def test_group_without_subcommand_means_its_default() -> None:
    assert parse(GROUP, ["--json"]).command.name == "one"
    found = parse(GROUP, ["--limit", "3"])
    assert (found.command.name, found.number("limit")) == ("one", 3)


def test_unknown_subcommand_and_missing_operand_have_their_own_texts() -> None:
    with pytest.raises(UsageError, match=r"^no such thing: three$"):
        parse(GROUP, ["three"])
    with pytest.raises(UsageError, match=r"^two wants an ID$"):
        parse(GROUP, ["two"])


def test_operand_that_takes_the_rest_takes_options_too() -> None:
    command = Command(
        "run",
        "for tests",
        options=(Option("--flag", "flag"),),
        operands=(
            Operand("FILE", "file", rest=True),
            Operand("ARG", "arguments", required=False, many=True, rest=True),
        ),
    )
    found = parse(command, ["--flag", "file", "--flag", "-x", "--"])
    assert found.operands == ["file", "--flag", "-x", "--"]
