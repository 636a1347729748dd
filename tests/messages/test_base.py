"""The promises to a message type, checked of each: nothing is left out, nothing more is offered."""

import inspect

from sow.core.paths import parse_path
from sow.messages import MESSAGE_TYPES, message_type
from sow.messages.base import Decoder, MessageType
from tests.cases import all_cases
from tests.messages.examples import OPTIONS


def promised(protocol):
    return {
        name: list(inspect.signature(found).parameters)[1:]
        for name, found in vars(protocol).items()
        if inspect.isfunction(found) and not name.startswith("_")
    }


@all_cases("name", MESSAGE_TYPES)
def test_a_type_takes_what_is_promised(name):
    found = message_type(name, OPTIONS)
    offered = {
        method: list(inspect.signature(getattr(found, method)).parameters)
        for method in promised(MessageType)
    }
    assert {method: len(names) for method, names in offered.items()} == {
        method: len(names) for method, names in promised(MessageType).items()
    }
    assert isinstance(found.name, str)
    assert isinstance(found.structured, bool)
    assert found.enc in (None, "base64")


@all_cases("name", MESSAGE_TYPES)
def test_its_decoder_reads_the_columns_that_it_was_made_for(name):
    decoder = message_type(name, OPTIONS).decoder((parse_path("/a"), parse_path("/b")))
    assert promised(Decoder).keys() <= {n for n in dir(decoder) if not n.startswith("_")}
    assert decoder.columns([]) == [[], []]
    assert decoder.read([]) == ([], [[], []])
