import pytest

from sow.core.definitions import MessageTypeOptions
from sow.errors import ClientError, NotAvailable
from sow.messages import MESSAGE_TYPES_REFUSED, message_type


@pytest.mark.parametrize("name", MESSAGE_TYPES_REFUSED)
def test_a_type_that_is_not_taken_is_refused_with_the_reason(name):
    with pytest.raises(NotAvailable, match=f"'{name}' is not available: its messages .*; publish"):
        message_type(name)


def test_a_misspelt_type_is_answered_with_the_nearest_one():
    with pytest.raises(ClientError, match=r"no message type 'jsn'; did you mean 'json'\?"):
        message_type("jsn")


def test_an_unknown_type_is_answered_with_all_known_ones():
    with pytest.raises(ClientError, match="known are json, nvfix, fix"):
        message_type("????")


def test_a_configured_name_stands_for_its_module():
    pipes = MessageTypeOptions("fix-pipe", "fix", field_separator=b"|")
    kind = message_type("fix-pipe", {"fix-pipe": pipes})
    assert kind.name == "fix-pipe"
    assert kind.parse(b"35=D|55=IBM|") == {"35": "D", "55": "IBM"}


def test_a_built_in_name_can_be_redefined():
    options = {"nvfix": MessageTypeOptions("nvfix", "nvfix", field_separator=b";")}
    assert message_type("nvfix", options).parse(b"a=1;") == {"a": "1"}


def test_a_configured_name_of_an_unknown_module_is_refused():
    with pytest.raises(ClientError, match=r"no message type 'fixx'; did you mean 'fix'\?"):
        message_type("mine", {"mine": MessageTypeOptions("mine", "fixx")})
