"""The protocol reference of the agent endpoint is what the typed methods say."""

from __future__ import annotations

from ipc.agent_methods import METHODS
from supervisor.agent.config_schema import PROPS
from supervisor.agent_endpoint import ASYNC_HANDLERS, HANDLERS
from tests.docs.agent_reference import PAGE


def test_every_method_has_a_handler_and_no_handler_lacks_a_method() -> None:
    served = {*HANDLERS, *ASYNC_HANDLERS, "initialize", "session/prompt"}

    assert served == set(METHODS)


def test_every_property_is_on_the_page() -> None:
    text = PAGE.read_text("utf-8")

    assert [path for path in PROPS if f"`{path}`" not in text] == []
