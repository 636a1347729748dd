"""Fields whose names hold what ends a name: as keys and indexes of a file, and in filters."""

import pytest

from sow.config import load
from sow.core.paths import parse_path
from tests.laws.harness import World

FILE = """<AMPSConfig><Name>x</Name><SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>{key}</Key>
<HashIndex><Key>{key}</Key></HashIndex></Topic>
<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic><Interval>1s</Interval></ConflatedTopic>
</SOW></AMPSConfig>"""

NAMES = ["a/b", "a]b", "it's/so", "both'\"/\\", "", "a b", "a*b", "[a"]


@pytest.mark.parametrize("name", NAMES)
def test_a_key_is_the_field_that_the_file_names(tmp_path, name):
    path = tmp_path / "config.xml"
    quoted = name.replace("\\", "\\\\").replace("'", "\\'")
    path.write_text(FILE.format(key=f"$['{quoted}']"))
    configuration = load(path).configuration
    world = World(*configuration.topics)
    world.publish("orders", {name: 1, "px": 1}, {name: 2, "px": 1}, {name: 1, "px": 2})
    world.advance(1_000_000)
    (key,) = world.engine.topic("orders").records.keys
    assert (parse_path(str(key)), key.steps) == (key, (name,))
    client = world.client()
    for topic in ("orders", "orders-C"):
        found = [
            line.get("d") for line in client.say(c="sow", t=topic, filter=f"$['{quoted}'] = 1")
        ]
        assert {name: 1, "px": 2} in found
