"""New names: definitions that would take one that is taken, and topics that lose theirs."""

from dataclasses import replace

import pytest

from sow.core.definitions import Configuration, Limits, Topic
from sow.engine.recovery.name_changes import check_definition, without_place
from sow.errors import ConfigError
from tests.engine.making import COPIES, DESKS, ORDERS, SLOW, catalog, put


def test_a_definition_that_would_take_a_name_is_refused():
    made, _ = catalog(ORDERS, DESKS, Topic("/desk/1-C", "json", keys=("/id",)))
    with pytest.raises(ConfigError, match="there is a topic of this name already"):
        check_definition(made, replace(SLOW, name="orders"))
    with pytest.raises(ConfigError, match="what the copy of /desk/1 would be called"):
        check_definition(made, COPIES)
    check_definition(made, COPIES, leaving=[made.topics["/desk/1-C"]])


def test_topics_that_another_configuration_has_no_place_for():
    made, _ = catalog(ORDERS, DESKS)
    for name in ("/desk/1", "/desk/2"):
        made.enter(made.publishable(name))
    put(made.topics["/desk/2"], {"id": 1})
    fewer = Configuration("test", (ORDERS, DESKS), limits=Limits(pattern_topics_max=1))
    assert [topic.name for topic in without_place(made, fewer)] == ["/desk/1"]
    named = Configuration("test", (ORDERS, DESKS, replace(SLOW, name="/desk/2")))
    assert {topic.name: why for topic, why in without_place(made, named).items()} == {
        "/desk/2": "/desk/2 is the name of a copy of /desk/2 now"
    }
