import os

import pytest

from sow.config import load, loads, require
from sow.config.document import DOCUMENT_BYTES_MAX, FILES_MAX, INCLUDES_DEPTH_MAX
from sow.errors import ConfigError
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


ORDERS = "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
COPY = (
    "<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>"
    "<UnderlyingTopic>orders</UnderlyingTopic></ConflatedTopic>"
)


@pytest.fixture
def files(tmp_path):
    """Writes files and loads config.xml, which has a Name and what is given first."""

    def load_with(config, **others):
        for name, text in others.items():
            path = tmp_path / (name.replace("__", "/") + ".xml")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        text = f"<SOWConfig>\n<Name>test</Name>\n{config}\n</SOWConfig>"
        (tmp_path / "config.xml").write_text(text)
        return load(str(tmp_path / "config.xml"))

    return load_with


@pytest.fixture
def placed(files, tmp_path):
    """The findings of `files`, with paths as they are below the folder."""
    return lambda config, **others: [
        str(found).replace(f"{tmp_path}/", "") for found in files(config, **others).findings
    ]


def included(text, **files):
    """Reads a document around `text`, whose includes are among `files`."""

    def read(path, bytes_max):
        return files[path.removesuffix(".xml")].encode()[:bytes_max]

    return loads(f"<SOWConfig><Name>test</Name>{text}</SOWConfig>", read=read)


def topics(loaded):
    assert loaded.configuration is not None, [str(found) for found in loaded.findings]
    return [topic.name for topic in loaded.configuration.topics]


def test_the_element_of_a_file_takes_the_place_of_its_include():
    loaded = included(
        f"<SOW><Include>a.xml</Include>{COPY}<Include>b.xml</Include></SOW>",
        a=ORDERS,
        b=ORDERS.replace("orders", "trades"),
    )
    assert topics(loaded) == ["orders", "orders-C", "trades"]


def test_a_file_of_the_section_that_it_stands_in_gives_what_is_in_it():
    both = included("<SOW><Include>a.xml</Include></SOW>", a=f"<SOW>{ORDERS}{COPY}</SOW>")
    assert topics(both) == ["orders", "orders-C"]
    assert topics(included("<Include>a.xml</Include>", a=f"<SOW>{ORDERS}</SOW>")) == ["orders"]
    whole = f"<SOWConfig><SOW>{ORDERS}</SOW></SOWConfig>"
    assert topics(included("<Include>a.xml</Include>", a=whole)) == ["orders"]


def test_a_value_called_like_its_section_is_a_value():
    rest = "<MessageType>json</MessageType></Topic></SOW>"
    loaded = included(f"<SOW><Topic><Include>a.xml</Include>{rest}", a="<Topic>orders</Topic>")
    assert topics(loaded) == ["orders"]


def test_a_path_is_relative_to_the_file_that_it_stands_in(files):
    loaded = files(
        "<Include>desks/all.xml</Include>",
        desks__all="<SOW><Include>orders.xml</Include><Include>../copy.xml</Include></SOW>",
        desks__orders=ORDERS,
        copy=COPY,
    )
    assert topics(loaded) == ["orders", "orders-C"]


def test_an_absolute_path_and_variables_are_taken(files, tmp_path):
    (tmp_path / "sow.xml").write_text(f"<SOW>{ORDERS}</SOW>")
    assert topics(files(f"<Include>{tmp_path}/sow.xml</Include>")) == ["orders"]
    assert topics(files("<Include> ${AMPS_CONFIG_DIRECTORY}/sow.xml </Include>")) == ["orders"]


def test_a_document_that_is_an_include_is_what_it_includes():
    orders = f"<SOW>{ORDERS}</SOW>"
    including = "<SOW><Include>a.xml</Include></SOW>"
    assert topics(included(including, a="<Include>b.xml</Include>", b=orders)) == ["orders"]


def test_one_file_may_be_included_several_times():
    keys = "<HashIndex><Key>/a</Key><Key>/b</Key></HashIndex>"
    one = ORDERS.replace("</Topic>", "<Include>keys.xml</Include></Topic>")
    two = one.replace("orders", "trades")
    loaded = included(f"<SOW>{one}{two}</SOW>", keys=keys)
    assert [topic.hash_indexes for topic in loaded.configuration.topics] == [(("/a", "/b"),)] * 2


def test_the_data_directory_is_that_of_the_first_file(files, tmp_path):
    loaded = files("<Include>in/d.xml</Include>", in__d="<DataDirectory>x</DataDirectory>")
    assert loaded.configuration.data_directory == str(tmp_path / "x")


def test_findings_name_the_file_and_its_line(placed):
    assert placed(
        "<Listn>1</Listn>\n<SOW>\n<Include>a.xml</Include></SOW>",
        a=ORDERS.replace("<Key>", "\n<Kye>").replace("</Key>", "</Kye>"),
    ) == [
        "a.xml:2: Kye: is not an element of Topic; did you mean Key?",
        "config.xml:3: Listn: is not an element of SOWConfig; did you mean Listen?",
    ]


def test_what_stands_in_another_file_is_named_with_it(placed):
    two = f"<SOW>{ORDERS}\n<Include>a.xml</Include>\n<Include>a.xml</Include></SOW>"
    found = placed(two, a=f"\n{ORDERS}")
    assert "already used in line 3 of " in found[0]
    assert found[0].startswith("a.xml:2: Name: ")
    late = f"<SOW>{COPY}\n<Include>a.xml</Include></SOW>"
    assert "is defined later, in line 2 of " in placed(late, a=f"\n{ORDERS}")[0]


def test_a_filter_breaks_on_its_own_line_in_its_own_file(placed):
    copy = COPY.replace("</Conf", "\n<Filter>/a = 1 AND\n/b ==== 2</Filter></Conf")
    (found,) = placed(f"<SOW>{ORDERS}<Include>a.xml</Include></SOW>", a=copy)
    assert found.startswith("a.xml:3: Filter: ")


def test_a_refused_element_is_found_in_a_file_inside_what_is_ignored(placed):
    found = placed("<Transports><Include>a.xml</Include></Transports>", a="<Entitlement/>")
    assert found[0].startswith("a.xml:1: Entitlement: ")


def test_an_open_address_is_reported_where_it_stands(files, tmp_path):
    loaded = files("<Include>a.xml</Include>", a="<Listen>0.0.0.0:1</Listen>")
    assert loaded.exposure.place == f"{tmp_path}/a.xml:1: Listen"


def test_a_file_that_is_missing_is_one_finding(placed):
    (found,) = placed(f"<SOW><Include>orders.xml</Include>{COPY}</SOW>")
    assert found == (
        "config.xml:3: Include: 'orders.xml' cannot be read: No such file or directory; write the "
        "path of a file, relative to the file that includes it"
    )


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (".", "cannot be read: Is a directory"),
        ("/dev/zero", "cannot be read: it is no regular file"),
        ("/dev/null", "cannot be read: it is no regular file"),
        ("pipe", "cannot be read: it is no regular file"),
        ("loop", "cannot be read: Too many levels of symbolic links"),
        ("a" * 5000, "cannot be read: File name too long"),
        ("huge", "larger than 5 MiB together"),
        ("empty", "not well-formed XML: Document is empty"),
        ("text", "not well-formed XML"),
        ("two", "a file has one element around all that is in it"),
        ("bomb", "a document type, with its entities and external files, is refused"),
        ("deep", "is nested too deeply"),
        ("config.xml", "leads in a circle: "),
        ("./../{}/config.xml", "leads in a circle: "),
        ("${NOPE}.xml", "the variable NOPE is not defined"),
        ("a&#10;b", "contains a control character or a line break"),
        ("", "is empty"),
        ("<x/>", "holds an element"),
    ],
)
def test_what_is_no_file_to_include_is_one_sentence(files, tmp_path, path, said):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    with open(tmp_path / "huge", "wb") as huge:
        huge.truncate(2**40)
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("root:x:0:0")
    (tmp_path / "two").write_text(ORDERS * 2)
    (tmp_path / "bomb").write_text('<!DOCTYPE a [<!ENTITY e "x">]><SOW>&e;</SOW>')
    (tmp_path / "deep").write_text("<a>" * 100 + "</a>" * 100)
    (found,) = files(f"<Include>{path.replace('{}', tmp_path.name)}</Include>").errors
    assert said in str(found)
    assert len(str(found)) < 1000


def test_a_circle_of_several_files_names_them(placed):
    (found,) = placed(
        "<Include>a.xml</Include>",
        a="<SOWConfig>\n<Include>b.xml</Include></SOWConfig>",
        b="<SOWConfig><Include>a.xml</Include></SOWConfig>",
    )
    assert found.startswith("b.xml:1: Include: leads in a circle: ")
    assert found.count("→") == 3


def test_a_circle_of_links_ends_at_the_depth(files, tmp_path):
    (tmp_path / "again").symlink_to(".")
    whole = "<SOWConfig><Include>again/a.xml</Include></SOWConfig>"
    (found,) = files("<Include>a.xml</Include>", a=whole).errors
    assert f"{INCLUDES_DEPTH_MAX + 1} are allowed" in found.message


def test_a_chain_as_deep_as_allowed_is_read():
    chain = {
        f"f{n}": f"<SOW><Include>f{n + 1}.xml</Include></SOW>" for n in range(1, INCLUDES_DEPTH_MAX)
    }
    chain[f"f{INCLUDES_DEPTH_MAX}"] = ORDERS
    assert topics(included("<SOW><Include>f1.xml</Include></SOW>", **chain)) == ["orders"]


def test_files_that_multiply_are_stopped_at_their_number():
    twice = "<SOW><Include>{0}.xml</Include><Include>{0}.xml</Include></SOW>"
    files = {f"f{n}": twice.format(f"f{n + 1}") for n in range(1, INCLUDES_DEPTH_MAX)}
    read = []

    def reading(path, _bytes_max):
        read.append(path)
        return files.get(path.removesuffix(".xml"), "<SOW/>").encode()

    (error,) = loads(twice.format("f1"), read=reading).errors
    assert f"and there may be {FILES_MAX}" in error.message
    assert len(read) == FILES_MAX


def test_files_are_bounded_together():
    filling = f"<SOW><!--{' ' * (DOCUMENT_BYTES_MAX // 2)}--></SOW>"
    loaded = included("<SOW>" + "<Include>a.xml</Include>" * 2 + "</SOW>", a=filling)
    (error,) = loaded.errors
    assert "larger than 5 MiB together" in error.message


def test_an_attribute_of_amps_is_a_warning_and_any_other_an_error():
    marked = included('<Include comment="true">a.xml</Include>', a=f"<SOW>{ORDERS}</SOW>")
    assert [found.severity for found in marked.findings] == ["warning"]
    assert topics(marked) == ["orders"]
    wrong = included('<Include coment="true">a.xml</Include>', a=f"<SOW>{ORDERS}</SOW>")
    assert wrong.errors[0].message == "has the unknown attribute 'coment'"


def test_a_required_file_names_the_included_one(files, tmp_path):
    files("<Include>a.xml</Include>", a="<SOW>\n<Topc/></SOW>")
    with pytest.raises(ConfigError) as caught:
        require(str(tmp_path / "config.xml"))
    assert str(caught.value).startswith(f"{tmp_path}/a.xml:2: Topc: is not an element of SOW; ")


def test_a_file_that_has_changed_is_read_again(files, tmp_path):
    loaded = files("<Include>a.xml</Include>", a=f"<SOW>{ORDERS}</SOW>")
    (tmp_path / "a.xml").write_text(f"<SOW>{ORDERS}{COPY}</SOW>")
    assert topics(loaded) == ["orders"]
    assert topics(load(str(tmp_path / "config.xml"))) == ["orders", "orders-C"]
