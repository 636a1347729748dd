"""How long the fuzz tests search, and the server they share.

By default each test tries some forty inputs, always the same ones: after the first time more would
take longer and find nothing. `SOW_FUZZ_EXAMPLES=5000` (which `make fuzz` sets) tries that many, new
ones every time; a failure prints how to repeat it.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.edge.serving import Running, configuration
from tests.edge.topics import MESSAGE_TYPES, TOPICS
from tests.effort import TIMES
from tests.fuzz.inputs import CONFIGURED
from tests.messages import examples

EXAMPLES = int(os.environ.get("SOW_FUZZ_EXAMPLES", "0"))

settings.register_profile(
    "fuzz",
    max_examples=EXAMPLES or 30 * TIMES,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    print_blob=bool(EXAMPLES),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
FUZZ = settings.get_profile("fuzz")


def topic(name):
    key = f"<Key>{examples.EXAMPLES[name].key}</Key>"
    return f"<Topic><Name>{name}</Name><MessageType>{name}</MessageType>{key}</Topic>"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A server with a topic of each message type."""
    kinds = "".join(examples.EXAMPLES[name].element for name in CONFIGURED)
    more = MESSAGE_TYPES.replace("</MessageTypes>", f"{kinds}</MessageTypes>")
    text = configuration(TOPICS + "".join(map(topic, CONFIGURED)), more)
    server = Running(text, tmp_path_factory.mktemp("data"))
    yield server
    server.close()
