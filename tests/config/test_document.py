import pytest

from sow.config import loads
from tests.cases import all_cases

BOMB = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
DOCTYPES = {
    "plain": "<!DOCTYPE AMPSConfig>",
    "external": '<!DOCTYPE AMPSConfig SYSTEM "file:///etc/hostname">',
    "network": '<!DOCTYPE AMPSConfig SYSTEM "http://192.0.2.1/evil.dtd">',
    "file entity": '<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/hostname">]>',
    "bomb": f'<!DOCTYPE a [<!ENTITY e0 "ha">{BOMB}<!ENTITY e "&e11;">]>',
    "parameter entity": '<!DOCTYPE a [<!ENTITY % p SYSTEM "file:///etc/hostname"> %p;]>',
}


@all_cases("doctype", DOCTYPES.values())
@all_cases("body", ["<Name>x</Name>", "<Name>&e;</Name>", '<Name a="&e;">x</Name>'])
def test_a_document_type_is_refused_and_nothing_of_it_expanded(doctype, body):
    """What the bomb stands for would not fit into any memory."""
    loaded = loads(f"{doctype}<AMPSConfig>{body}</AMPSConfig>")
    assert loaded.configuration is None
    assert loaded.errors[0].element == "DOCTYPE"


def test_malformed_xml_is_reported_with_its_line(only):
    assert only(loads("<AMPSConfig>\n<Name>x</Nam>\n</AMPSConfig>")).startswith(
        "config.xml:2: document: not well-formed XML: Opening and ending tag mismatch"
    )


def test_a_bare_less_than_in_a_filter_is_sent_how_to_be_written():
    [finding] = loads("<AMPSConfig>\n<Filter>/a < 3</Filter></AMPSConfig>").findings
    assert finding.line == 2
    assert "&lt;" in finding.instead


@pytest.mark.parametrize("text", ["", " ", "hello", b"\xff\xfe\x00", b"\x00", "<a>\ud800</a>"])
def test_what_is_no_xml_is_one_finding(text, only):
    assert only(loads(text)).startswith("config.xml:1: document: not well-formed XML")


def test_depth_and_size_are_bounded(only):
    assert "nested too deeply" in only(loads("<a>" * 100 + "</a>" * 100))
    assert "Excessive depth" in only(loads("<a>" * 100_000 + "</a>" * 100_000))
    assert "larger than 5 MiB" in only(loads(" " * (5 * 1024**2 + 1)))


def test_a_file_may_have_another_encoding():
    text = '<?xml version="1.0" encoding="ISO-8859-1"?><SOWConfig><Name>zürich</Name></SOWConfig>'
    for given in (text, text.encode("latin-1")):
        loaded = loads(given)
        assert loaded.configuration is not None
        assert loaded.configuration.name == "zürich"


def test_comments_and_instructions_inside_values_are_no_part_of_them():
    loaded = loads("<AMPSConfig><Name>a<!-- no -->b<?no no?></Name></AMPSConfig>")
    assert loaded.configuration is not None
    assert loaded.configuration.name == "ab"


def test_what_names_a_schema_to_an_editor_is_passed_over(only):
    space = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
    name = "<Name>x</Name></SOWConfig>"
    location = 'xsi:noNamespaceSchemaLocation="sow.xsd"'
    assert not loads(f"<SOWConfig {space} {location}>{name}").findings
    unknown = only(loads(f"<SOWConfig {space} noNamespaceSchemaLocation='x'>{name}"))
    assert "unknown attribute 'noNamespaceSchemaLocation'" in unknown


def test_lines_are_right_in_long_files(only):
    text = "<AMPSConfig><Name>x</Name>" + "\n" * 70_000 + "<Nmae>x</Nmae></AMPSConfig>"
    assert only(loads(text)).startswith("config.xml:70001: Nmae:")


def test_another_document_is_refused_by_its_root(only):
    assert only(loads("<html/>")) == (
        "config.xml:1: html: is not a root element; write <AMPSConfig> or <SOWConfig>"
    )


def test_a_variable_is_taken_from_the_command_line_before_the_environment(instance):
    loaded = instance(
        "<Listen>${HOST}:${PORT}</Listen>",
        variables={"PORT": "9000"},
        environment={"PORT": "1", "HOST": "0.0.0.0"},
    )
    assert (loaded.configuration.host, loaded.configuration.port) == ("0.0.0.0", 9000)


def test_an_undefined_variable_is_named_with_what_to_do(instance, only):
    text = only(instance("\n<Listen>${PROT}</Listen>", variables={"PORT": "9000"}))
    assert text.startswith("config.xml:2: Listen: the variable PROT is not defined")
    assert "did you mean PORT?" in text
    assert "--set PROT=VALUE" in text


def test_a_variable_is_never_markup_nor_expanded_twice(instance, only):
    nested = instance("<DataDirectory>${A}</DataDirectory>", variables={"A": "${B}", "B": "b"})
    assert nested.configuration.data_directory == "${B}"
    markup = instance("<Listen>${A}</Listen>", variables={"A": "</Listen><Nope/>"})
    assert "'</Listen><Nope/>' is not an address" in only(markup)


def test_a_variable_works_in_an_attribute(orders):
    loaded = orders('<Durability FlushInterval="${F}">persistent</Durability>')
    assert "the variable F is not defined" in str(loaded.findings[0])


@pytest.mark.parametrize("text", ["${}", "${a b}", "${1}"])
def test_what_is_no_name_is_refused(instance, only, text):
    assert "does not name a variable" in only(instance(f"<DataDirectory>{text}</DataDirectory>"))


def test_a_dollar_sign_alone_is_itself(copy):
    loaded = copy("<Filter>/side LIKE 'y$'</Filter>")
    assert loaded.configuration.topics[1].filter == "/side LIKE 'y$'"


def test_the_place_of_the_file_is_built_in():
    text = "<SOWConfig><Name>x</Name><DataDirectory>${AMPS_CONFIG_DIRECTORY}/d</DataDirectory>"
    loaded = loads(text + "</SOWConfig>", file="/etc/sow/c.xml")
    assert loaded.configuration.data_directory == "/etc/sow/d"
