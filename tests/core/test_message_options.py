import orjson
import pytest

from sow.core.definitions import MessageTypeOptions, RecordField
from sow.core.message_options import described, fields_of, options_of, reads

ID, PX = RecordField("id", "int"), RecordField("px", "decimal")
TRADES = MessageTypeOptions("trades", "record", b"\x02", (ID, PX), line=4)
BOTH = MessageTypeOptions(
    "both", "composite-local", parts=(MessageTypeOptions("json", "json"), TRADES)
)


def changed(options, **values):
    return MessageTypeOptions(
        **{
            "name": options.name,
            "module": options.module,
            "field_separator": options.field_separator,
            "fields": options.fields,
            "parts": options.parts,
            **values,
        }
    )


@pytest.mark.parametrize("options", [TRADES, BOTH, MessageTypeOptions("bar", "fix", b"|")])
def test_what_was_described_is_read_again(options):
    assert options_of(orjson.loads(orjson.dumps(described(options)))) == options


def test_what_knows_neither_fields_nor_parts_is_read_too():
    said = {"name": "bar", "module": "fix", "field_separator": "|"}
    assert options_of(said) == MessageTypeOptions("bar", "fix", b"|")
    assert fields_of([]) == ()


def test_the_line_makes_no_difference():
    assert changed(TRADES, line=9) == TRADES


def test_a_field_more_at_the_end_reads_old_records():
    more = changed(TRADES, fields=(ID, PX, RecordField("qty")))
    assert reads(more, TRADES)
    assert not reads(TRADES, more)
    assert reads(changed(BOTH, parts=(BOTH.parts[0], more)), BOTH)


@pytest.mark.parametrize(
    "other",
    [
        changed(TRADES, fields=(PX, ID)),
        changed(TRADES, fields=(ID, RecordField("price", "decimal"))),
        changed(TRADES, fields=(ID, RecordField("px", "string"))),
        changed(TRADES, field_separator=b"|"),
        changed(TRADES, module="fix"),
        BOTH,
        None,
    ],
)
def test_other_fields_do_not(other):
    assert not reads(other, TRADES)


def test_parts_are_compared_one_by_one():
    json, trades = BOTH.parts
    assert not reads(changed(BOTH, parts=(trades, json)), BOTH)
    assert not reads(changed(BOTH, parts=(json, trades, json)), BOTH)
    assert reads(changed(BOTH, parts=(json, changed(trades, name="deals"))), BOTH)


def test_a_type_as_it_comes_reads_itself():
    assert reads(None, None)
