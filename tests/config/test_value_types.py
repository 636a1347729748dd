import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.config import loads
from sow.config.diagnostics import MistakeError
from sow.config.value_types import count_of, duration_us, size_bytes


@pytest.mark.parametrize("name", ["a/b", "a\\b", "a$", "~a"])
def test_an_instance_name_has_no_characters_of_paths(name):
    [finding] = loads(f"<AMPSConfig><Name>{name}</Name></AMPSConfig>").errors
    assert "contains" in finding.message


@pytest.mark.parametrize("name", ["View Server Demo", " desk\n", "Zürich 1 – risk"])
def test_an_instance_name_may_have_blanks(name):
    loaded = loads(f"<AMPSConfig><Name>{name}</Name></AMPSConfig>")
    assert (loaded.findings, loaded.configuration.name) == ((), name.strip())


@pytest.mark.parametrize("name", ["a\tb", "a\nb", "a\u200bb"])
def test_an_instance_name_has_no_other_blanks(name):
    (finding,) = loads(f"<AMPSConfig><Name>{name}</Name></AMPSConfig>").errors
    assert "control character or a line break" in finding.message


@pytest.mark.parametrize("name", ["a\tb", "a&#10;b", "a&#x85;b", "a&#x200b;b", "x" * 256])
def test_a_topic_name_is_printable_and_bounded(sow, only, name):
    xml = f"<Topic><Name>{name}</Name><MessageType>json</MessageType></Topic>"
    assert ": Name: " in only(sow(xml))


def test_a_topic_name_may_have_255_characters_of_any_script(sow):
    name = "é" * 255
    loaded = sow(f"<Topic><Name>{name}</Name><MessageType>json</MessageType></Topic>")
    assert loaded.configuration.topics[0].name == name


@pytest.mark.parametrize("path", ["id", "/", "/a//b", "$", "$..a", "/a[x]"])
@pytest.mark.parametrize("element", ["Key", "Index"])
def test_a_bad_path_is_refused(orders, only, path, element):
    assert f": {element}: " in only(orders(f"<{element}>{path}</{element}>"))


def test_paths_are_kept_in_one_spelling(orders):
    loaded = orders("<Index>$.order.id</Index><Index> /legs[0] </Index>")
    assert loaded.configuration.topics[0].indexes == ("/order/id", "/legs[0]")


@pytest.mark.parametrize("interval", ["99ms", "0", "1us"])
def test_an_interval_under_100ms_is_refused(copy, only, interval):
    assert only(copy(f"<Interval>{interval}</Interval>")) == (
        f"config.xml:1: Interval: {interval} is less than the minimum, 100ms; write 100ms or more"
    )


def test_an_interval_of_100ms_is_the_least(copy):
    loaded = copy("<Interval>100ms</Interval>")
    assert loaded.configuration.topics[1].interval_us == 100_000


def test_an_interval_without_a_unit_is_refused(copy, only):
    assert "'5' has no unit; write 5s" in only(copy("<Interval>5</Interval>"))


def test_a_filter_that_does_not_compile_is_shown_where_it_breaks(copy, only):
    text = only(copy("\n<Filter>\n  /a = 1 AND\n  /b ! 2\n</Filter>"))
    assert text.startswith("config.xml:4: Filter: '!' at position 16 is not understood")
    assert "expected an operator" in text


def test_a_mistake_within_a_literal_carries_its_position_too(copy, only):
    assert "(at position 9); " in only(copy("<Filter>\n/a  LIKE '(?=a)'</Filter>"))


def test_an_aggregate_in_a_filter_is_refused_with_the_place_that_it_has(copy, only):
    assert "projection=[SUM(x) AS /name]" in only(copy("<Filter>SUM(/a) = 1</Filter>"))


def test_the_filter_of_a_topic_may_read_the_message_and_not_the_time(copy, only):
    assert copy("<Filter>TOPIC_NAME() = 'B' AND MESSAGE_SIZE() > 5</Filter>").findings == ()
    text = only(copy("<Filter>/a = 1 AND\n TODAY() > 5</Filter>"))
    assert text.startswith("config.xml:2: Filter: the filter of a topic cannot read the time")
    assert "compare with a field or a number" in text


@pytest.mark.parametrize(
    ("text", "expires", "lifetime_us"),
    [
        ("disabled", False, None),
        ("enabled", True, None),
        ("30m", True, 1_800_000_000),
        ("0", True, None),
        ("0s", True, None),
    ],
)
def test_expiration_is_a_switch_or_a_lifetime(orders, text, expires, lifetime_us):
    topic = orders(f"<Expiration>{text}</Expiration>").configuration.topics[0]
    assert (topic.expires, topic.expiration_us) == (expires, lifetime_us)


@pytest.mark.parametrize("text", ["30", "-1", "never", "none", "soon"])
def test_any_other_expiration_is_refused_with_the_choice(orders, only, text):
    assert "disabled" in only(orders(f"<Expiration>{text}</Expiration>"))


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:80", "127.0.0.1", 80),
        ("9007", "127.0.0.1", 9007),
        ("[::1]:8080", "::1", 8080),
        ("localhost:0", "localhost", 0),
    ],
)
def test_an_address_is_a_host_and_a_port(instance, text, host, port):
    configuration = instance(f"<Listen>{text}</Listen>").configuration
    assert (configuration.host, configuration.port) == (host, port)


@pytest.mark.parametrize("text", ["localhost", "a:b", ":80", "::1:80", "http://a:80"])
def test_what_is_no_address_is_refused(instance, only, text):
    assert "is not an address; write host:port" in only(instance(f"<Listen>{text}</Listen>"))


@pytest.mark.parametrize("port", ["65536", "70000", "99999", "123456"])
def test_a_port_out_of_range_is_sent_the_range(instance, only, port):
    text = only(instance(f"<Listen>127.0.0.1:{port}</Listen>"))
    assert f"Listen: the port {port} is above the highest, 65535; write one from 1" in text


def test_the_highest_port_is_a_port(instance):
    assert instance("<Listen>65535</Listen>").configuration.port == 65535


@pytest.mark.parametrize("text", ["0", "61", "65", "48", "128", "|", "0x01", "999"])
def test_what_cannot_separate_fields_is_refused(instance, only, text):
    xml = f"<Name>x</Name><Module>fix</Module><FieldSeparator>{text}</FieldSeparator>"
    loaded = instance(f"<MessageTypes><MessageType>{xml}</MessageType></MessageTypes>")
    assert "is not the code of a separator" in only(loaded)


def test_a_misspelt_choice_is_answered_with_the_nearest(orders, only):
    text = only(orders("<Durability>persistant</Durability>"))
    assert text.startswith("config.xml:1: Durability: 'persistant' is not one of persistent, ")
    assert text.endswith("did you mean persistent?")


@pytest.mark.parametrize(
    ("xml", "named"),
    [
        ("<Durability>memory</Durability>", "Durability"),
        ("<Duration>memory</Duration>", "Duration"),
        ("<Durability><Mode>memory</Mode></Durability>", "Mode"),
        ("<Durability FlushInterval='5'>persistent</Durability>", "FlushInterval"),
    ],
)
def test_a_mistake_is_named_by_the_element_that_its_writer_sees(orders, only, xml, named):
    assert only(orders(xml)).startswith(f"config.xml:1: {named}: ")


@pytest.mark.parametrize("text", ["x" * 100_000, "x\n" * 1000])
@pytest.mark.parametrize("element", ["Durability", "Expiration", "FileName", "Key", "Filter"])
def test_a_finding_is_no_echo_of_a_long_value(orders, text, element):
    for finding in orders(f"<{element}>{text}</{element}>").errors:
        assert len(finding.advice) < 500


@pytest.mark.parametrize("path", ["/var/sow", "../x", "a/../b", ".", "a\\b"])
@pytest.mark.parametrize("element", ["FileName", "JournalDirectory"])
def test_paths_stay_inside_the_data_directory(instance, only, path, element):
    xml = f"<{element}>{path}</{element}>"
    if element == "FileName":
        xml = f"<SOW><Topic><Name>a</Name><MessageType>json</MessageType>{xml}</Topic></SOW>"
    else:
        xml = f"<TransactionLog>{xml}</TransactionLog>"
    assert f"config.xml:1: {element}: " in only(instance(xml))


@pytest.mark.parametrize(
    ("xml", "meant"),
    [
        ("<Retain>yes</Retain>", "true"),
        ("<Retain>0</Retain>", "false"),
        ("<Retain>Enabled</Retain>", "true"),
        ("<Durability>memory</Durability>", "transient"),
        ("<Durability>disk</Durability>", "persistent"),
        ("<Expiration>never</Expiration>", "disabled"),
        ('<Schema><Field type="text">/a</Field></Schema>', "string"),
        ('<Schema><Field type="INTEGER">/a</Field></Schema>', "int64"),
        ('<Schema><Field type="boolean">/a</Field></Schema>', "bool"),
    ],
)
def test_a_value_that_others_write_is_answered_with_the_one_here(orders, only, xml, meant):
    assert only(orders(xml)).endswith(f"did you mean {meant}?")


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("500us", 500),
        ("5ms", 5_000),
        ("1s", 1_000_000),
        ("1.5s", 1_500_000),
        ("30m", 1_800_000_000),
        ("2h", 7_200_000_000),
        ("1d", 86_400_000_000),
        ("1w", 604_800_000_000),
        ("0", 0),
        ("10 ms", 10_000),
    ],
)
def test_an_interval_is_read_as_microseconds(text, us):
    assert duration_us(text) == us


def test_nanoseconds_round_up_so_that_no_interval_becomes_nothing():
    assert duration_us("1ns") == 1
    assert duration_us("1001ns") == 2


@given(st.integers(0, 10**9), st.sampled_from(["us", "ms", "s"]))
def test_a_unit_is_a_thousand_times_the_one_below(number, unit):
    below = {"us": "ns", "ms": "us", "s": "ms"}[unit]
    assert duration_us(f"{number}{unit}") == duration_us(f"{number * 1000}{below}")


def test_a_bare_interval_is_refused_with_units_to_choose_from():
    with pytest.raises(MistakeError) as caught:
        duration_us("5")
    assert caught.value.message == "'5' has no unit"
    assert "5s, 5ms" in caught.value.instead


@pytest.mark.parametrize("text", ["5S", "5 parsecs", "-1s", "s", "1e3s", "", "1..2s", "٣s"])
def test_what_is_no_interval_is_refused(text):
    with pytest.raises(MistakeError):
        duration_us(text)


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("100", 100),
        ("1K", 1024),
        ("1KB", 1024),
        ("1kb", 1024),
        ("1KiB", 1024),
        ("16MB", 16 * 1024**2),
        ("1.5G", 3 * 1024**3 // 2),
        ("2TiB", 2 * 1024**4),
        ("7B", 7),
    ],
)
def test_sizes_count_in_powers_of_1024(text, bytes_):
    assert size_bytes(text) == bytes_


@pytest.mark.parametrize("text", ["1.5", "5XB", "-1", "MB", "1 2", "iB", "1iB"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(MistakeError):
        size_bytes(text)


def test_counts_take_thousands_and_millions_in_either_case():
    assert [count_of(text) for text in ("7", "10k", "10K", "2M", "0.5m")] == [
        7,
        10_000,
        10_000,
        2_000_000,
        500_000,
    ]


@pytest.mark.parametrize("read", [duration_us, size_bytes, count_of])
def test_numbers_that_would_not_fit_are_refused(read):
    for text in ("9" * 30, "9" * 30 + "s", "9" * 5000):
        with pytest.raises(MistakeError):
            read(text)


@pytest.mark.parametrize("read", [duration_us, size_bytes, count_of])
@given(text=st.text() | st.from_regex(r"[0-9]{1,50}\.?[0-9]*[a-zA-Z]{0,3}", fullmatch=True))
def test_no_text_raises_anything_but_a_mistake(read, text):
    with contextlib.suppress(MistakeError):
        assert 0 <= read(text) <= 2**62
