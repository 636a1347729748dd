"""Short ways to read a configuration: each test writes only the elements that it is about."""

from collections.abc import Callable

import pytest

from sow.config import Loaded, loads

ORDERS = "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"


@pytest.fixture
def instance() -> Callable[..., Loaded]:
    """Reads elements that stand in the root, beside a Name."""
    return lambda xml, **options: loads(
        f"<AMPSConfig><Name>test</Name>{xml}</AMPSConfig>", **options
    )


@pytest.fixture
def sow(instance) -> Callable[..., Loaded]:
    """Reads topics."""
    return lambda xml: instance(f"<SOW>{xml}</SOW>")


@pytest.fixture
def orders(sow) -> Callable[..., Loaded]:
    """Reads elements of a json topic called orders that is keyed by /id."""
    return lambda xml: sow(ORDERS.replace("</Topic>", f"{xml}</Topic>"))


@pytest.fixture
def copy(sow) -> Callable[..., Loaded]:
    """Reads elements of a conflated topic called copy over the topic orders."""
    return lambda xml: sow(
        f"{ORDERS}<ConflatedTopic><Name>copy</Name><MessageType>json</MessageType>"
        f"<UnderlyingTopic>orders</UnderlyingTopic>{xml}</ConflatedTopic>"
    )


@pytest.fixture
def only() -> Callable[[Loaded], str]:
    """The one finding of a file, as an operator reads it."""

    def text(loaded: Loaded) -> str:
        assert len(loaded.findings) == 1, [str(finding) for finding in loaded.findings]
        assert (loaded.configuration is None) == (loaded.findings[0].severity == "error")
        return str(loaded.findings[0])

    return text
