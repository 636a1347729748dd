import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from lxml import etree

from sow.cli import main
from sow.cli.commands import check as module
from sow.cli.commands.check import READ, XS, fields_of, schema
from sow.config import loads
from sow.config.elements.table import ROOT
from sow.security.authentication.tokens import sum_of
from tests.cases import all_cases
from tests.docs.blocks import fenced
from tests.docs.test_blocks import VARIABLES, whole

TOPIC = "<Topic><Name>{}</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"

SOW = f"<SOW>{TOPIC.format('orders')}</SOW>"


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Checks a config.xml that holds these topics."""
    monkeypatch.chdir(tmp_path)

    def run(xml, *arguments):
        text = f"<SOWConfig><Name>test</Name><SOW>{xml}</SOW></SOWConfig>"
        (tmp_path / "config.xml").write_text(text)
        return CliRunner().invoke(main, ["check", *arguments])

    return run


def test_a_good_file_says_how_many_topics_it_has(check):
    result = check(TOPIC.format("orders"))
    assert (result.exit_code, result.stdout) == (0, "config.xml: ok (1 topic)\n")


def test_a_mistake_is_a_line_with_its_place(check):
    result = check(TOPIC.format("orders").replace("Key>", "Kye>"))
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == (
        "config.xml:1: Kye: error: is not an element of Topic; did you mean Key?"
    )


def test_errors_and_warnings_are_sent_apart_and_counted(check):
    slab, unknown = "<SlabSize>1MB</SlabSize></Topic>", "<Kye>/id</Kye><Kye>/b</Kye></Topic>"
    wrong = TOPIC.format("orders").replace("</Topic>", slab).replace("</Topic>", unknown)
    result = check(wrong)
    *lines, last = result.stdout.splitlines()
    assert [line.split(": ")[1:3] for line in lines] == [
        ["SlabSize", "warning"],
        ["Kye", "error"],
        ["Kye", "error"],
    ]
    assert last == "config.xml: 2 errors, 1 warning"


def test_warnings_alone_are_counted_beside_the_topics(check):
    result = check(TOPIC.format("orders").replace("</Topic>", "<SlabSize>1MB</SlabSize></Topic>"))
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (
        0,
        "config.xml: ok (1 topic, 1 warning)",
    )


def test_an_address_beyond_loopback_is_an_error(tmp_path):
    path = tmp_path / "config.xml"
    path.write_text(f"<SOWConfig><Name>x</Name>\n<Listen>0.0.0.0:80</Listen>{SOW}</SOWConfig>")
    result = CliRunner().invoke(main, ["check", str(path)])
    assert result.exit_code == 1
    first, last = result.stdout.splitlines()
    assert first.startswith(f"{path}:2: Listen: error: 0.0.0.0 is not loopback")
    assert last.endswith("1 error, 0 warnings")
    (found,) = json.loads(CliRunner().invoke(main, ["check", str(path), "--json"]).stdout)
    assert (found["element"], found["severity"]) == ("Listen", "error")


def test_findings_as_json(check):
    result = check(TOPIC.format("orders").replace("Key>", "Kye>"), "--json")
    (finding,) = [found for found in json.loads(result.stdout) if found["element"] == "Kye"]
    assert (finding["file"], finding["line"], finding["severity"]) == ("config.xml", 1, "error")


def test_a_good_file_as_json_is_an_empty_list(check):
    assert json.loads(check(TOPIC.format("orders"), "--json").stdout) == []


def test_variables_are_set_on_the_command_line(check):
    assert check(TOPIC.format("${TOPIC}"), "--set", "TOPIC=orders").exit_code == 0


def test_a_variable_without_a_value_is_wrong_usage(check):
    assert check(TOPIC.format("${TOPIC}"), "--set", "TOPIC").exit_code == 2


def test_a_file_that_is_not_there_is_a_finding(tmp_path):
    result = CliRunner().invoke(main, ["check", str(tmp_path / "config.xml")])
    assert result.exit_code == 1
    assert "cannot be read" in result.stdout


def test_the_schema_is_written_without_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["check", "--xsd"])
    assert result.exit_code == 0
    assert result.stdout == schema()


CONFIG = """<SOWConfig><Name>desk</Name>
<SOW><Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic></SOW>
<Security><Authentication><Tokens><File>tokens</File></Tokens></Authentication>
<Role><Name>desk</Name><Member>group:desk</Member>
  <Allow><Topic>orders.*</Topic><Read/><Filter>/desk = ${user.desk}</Filter>
    <Select>-/client</Select></Allow>
  <Allow><Topic>orders</Topic><Write/><Check>/desk = 'fx'</Check></Allow></Role>
<Role><Name>small</Name><Member>*</Member>
  <Allow><Topic>orders</Topic><Read/><Filter>/qty &lt; 10</Filter></Allow></Role>
</Security></SOWConfig>"""


@pytest.fixture
def check_as(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.xml").write_text(CONFIG)
    (tmp_path / "tokens").write_text(f"ann {sum_of('a')} desk\nbob {sum_of('b')}\n")
    return lambda *words: CliRunner().invoke(main, ["check", *words])


def test_each_allow_is_said_and_what_they_come_to(check_as):
    found = check_as("orders", "--as", "ann", "--claim", "desk=o'fx")
    assert found.exit_code == 0, found.stderr
    assert found.stdout.splitlines() == [
        "ann (desk) may read, write orders",
        "  role desk allows to read orders.*; rows /desk = 'o\\'fx'; fields -/client",
        "  role desk allows to write orders; check /desk = 'fx'",
        "  role small allows to read orders; rows /qty < 10",
        "rows: /desk = 'o\\'fx' OR /qty < 10",
        "fields: all",
    ]


def test_what_is_not_known_of_a_user_gives_nothing(check_as):
    found = check_as("config.xml", "orders", "--as", "ann")
    assert "by a claim that this user lacks: it grants nothing" in found.stdout
    assert "rows: /qty < 10" in found.stdout


def test_a_filter_is_joined_as_his_own_would_be(check_as):
    found = check_as("orders", "--as", "bob", "--filter", "/qty > 5", "--json")
    said = json.loads(found.stdout)
    assert said["rows"] == "/qty < 10 AND /qty > 5"
    assert (said["user"], said["groups"], said["may"]) == ("bob", [], ["read"])


def test_what_he_does_not_see_does_not_exist(check_as):
    assert check_as("secret", "--as", "bob").stdout == "bob does not see secret\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--as", "ann"), 2, "--as needs a TOPIC: sow check CONFIG TOPIC --as USER"),
        (("a", "b", "c", "--as", "ann"), 2, "unexpected argument 'c'"),
        (("config.xml", "orders"), 2, "unexpected argument 'orders'"),
        (("orders", "--as", "eve"), 1, "no file of users or tokens has 'eve'"),
        (("orders", "--as", "ann", "--filter", "/a >"), 1, "position"),
        (("orders", "--as", "ann", "--claim", "desk"), 2, "'desk' is not NAME=VALUE"),
    ],
)
def test_what_cannot_be_said_is_one_sentence(check_as, words, code, said):
    found = check_as(*words)
    assert (found.exit_code, said in found.stderr) == (code, True), found.stderr


def test_a_configuration_that_asks_nobody_says_so(check_as, tmp_path):
    (tmp_path / "config.xml").write_text("<SOWConfig><Name>open</Name></SOWConfig>")
    assert "everybody sees everything" in check_as("orders", "--as", "ann").stderr


def test_a_server_counts_what_he_would_see(check_as, monkeypatch):
    requested = []

    async def count(*given):
        requested.append(given)
        return 12

    monkeypatch.setattr(module, "_count", count)
    found = check_as("orders", "--as", "bob", "--count", "--url", "http://there")
    assert found.stdout.splitlines()[-1] == "matches: 12"
    assert requested == [("orders", "/qty < 10")]


TOP = Path(__file__).parents[3]
FOR_AMPS = TOP / "docs/guide/amps.xml"
FILES = sorted(
    {TOP / "config.xml", TOP / "sow/cli/demo.xml", *(TOP / "docs").rglob("*.xml")} - {FOR_AMPS}
)
SCHEMA = etree.XMLSchema(etree.fromstring(schema()))
READ_ELEMENTS = [(place, e) for place, e in ROOT.walk() if place and e.status in READ]
LEFT_OUT = [(place, e) for place, e in ROOT.walk() if e.status not in READ]


def slips(text):
    """What an editor marks: line and message."""
    document = etree.fromstring(text.encode())
    SCHEMA.validate(document)
    return [(error.line, error.message) for error in SCHEMA.error_log]


def inside(place, xml):
    for section in reversed(place.split("/")):
        xml = f"<{section}>{xml}</{section}>"
    return xml


def sample(element, name):
    """An element of this name with something in it."""
    if element.kind is None:
        return f"<{name}/>"
    return f"<{name}>{element.kind.words[0] if element.kind.words else 'text'}</{name}>"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_files_that_are_shipped_are_valid(file):
    assert slips(file.read_text()) == []


@all_cases("block", fenced("xml"))
def test_examples_of_the_pages_are_valid(block):
    text = whole(block.text)
    assert loads(text, variables=VARIABLES).configuration is not None
    assert slips(text) == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_misspelt_element_is_marked_in_its_line(file):
    text = file.read_text()
    commented = re.sub(r"<!--.*?-->", lambda found: "\n" * found[0].count("\n"), text, flags=re.S)
    line = commented[: commented.index("<Key>")].count("\n") + 1
    planted = commented.replace("<Key>", "<Kye>", 1).replace("</Key>", "</Kye>", 1)
    (slip, *_) = slips(planted)
    assert slip[0] == line
    assert "'Kye': This element is not expected" in slip[1]


@all_cases(("place", "element"), READ_ELEMENTS)
def test_each_element_is_known_in_its_place_under_each_name(place, element):
    for name in element.names:
        assert slips(inside(place, sample(element, name))) == []
    assert slips(inside(place, f"<{element.name}x/>"))


@all_cases(("place", "element"), LEFT_OUT)
def test_what_a_server_refuses_is_marked(place, element):
    assert slips(inside(place, f"<{element.name}/>"))


@all_cases("place", sorted({place for place, _ in READ_ELEMENTS}))
def test_an_include_may_stand_in_every_section(place):
    assert slips(inside(place, '<Include comment="true">a.xml</Include>')) == []
    assert slips(inside(place, "<Include><a/></Include>"))


def test_words_are_sent_and_variables_may_stand_for_them():
    place = "SOWConfig/SOW/ConflatedTopic"
    assert slips(inside(place, "<Schedule> tick </Schedule>")) == []
    assert slips(inside(place, "<Schedule>${HOW}</Schedule>")) == []
    assert slips(inside(place, "<Schedule>tack</Schedule>"))


@pytest.mark.parametrize(
    "form",
    [
        '<Durability FlushInterval="5ms">persistent</Durability>',
        "<Duration><Mode>transient</Mode><FlushInterval>5ms</FlushInterval></Duration>",
    ],
)
def test_attributes_and_own_text_are_taken_where_they_are_read(form):
    assert slips(inside("SOWConfig/SOW/Topic", form)) == []
    assert slips(inside("SOWConfig/SOW/Topic", form.replace("FlushInterval", "Flush")))
    assert slips(inside("SOWConfig/SOW", form))


def test_what_a_file_for_amps_is_refused_for_is_marked():
    refused = {error.line for error in loads(FOR_AMPS.read_text()).errors}
    marked = {line for line, _ in slips(FOR_AMPS.read_text())}
    assert marked
    assert marked <= refused


def test_text_between_elements_is_marked():
    assert slips("<SOWConfig><SOW>text</SOW></SOWConfig>")


def test_an_editor_shows_what_an_element_is_for_and_its_default():
    (said,) = etree.fromstring(schema()).findall(
        f".//{{{XS}}}element[@name='QueueMaxMessages']//{{{XS}}}documentation"
    )
    assert said.text == "Messages that may wait for one client. Default: 10000."


FILE = """<SOWConfig><Name>desk</Name><SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
  <HashIndex><Key>/symbl</Key></HashIndex></Topic>
<Topic><Name>copies</Name><MessageType>json</MessageType><Key>/id</Key>
  <HashIndex><Key>/nowhere</Key></HashIndex></Topic>
<Topic><Name>new-here</Name><MessageType>json</MessageType><Key>/id</Key>
  <HashIndex><Key>/nowhere</Key></HashIndex></Topic>
<View><Name>sums</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
  <Projection><Field>/symbol</Field><Field>SUM(/qyt) AS /qty</Field></Projection>
  <Grouping><Field>/symbol</Field></Grouping></View>
</SOW></SOWConfig>"""


@pytest.fixture
def config(tmp_path):
    (tmp_path / "desk.xml").write_text(FILE)
    return str(tmp_path / "desk.xml")


def test_the_fields_that_elements_name():
    found = {
        (one.element, one.topic, str(one.path)) for one in fields_of(loads(FILE).configuration)
    }
    assert found == {
        ("HashIndex", "orders", "/symbl"),
        ("HashIndex", "copies", "/nowhere"),
        ("HashIndex", "new-here", "/nowhere"),
        ("View", "orders", "/symbol"),
        ("View", "orders", "/qyt"),
    }


def test_they_are_warnings_of_topics_that_have_records(sow, orders, config):
    orders({"id": 1, "symbol": "IBM", "qty": 2})
    result = sow("check", config)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{config}:2: HashIndex: warning: orders: no record has /symbl; did you mean /symbol?",
        f"{config}:8: View: warning: sums: no record has /qyt; did you mean /qty?",
        f"{config}: ok (4 topics, 2 warnings)",
    ]
    found = json.loads(sow.ok("check", config, "--json"))
    assert [one["element"] for one in found] == ["HashIndex", "View"]


def test_without_an_address_no_server_is_needed_and_one_that_is_away_is_a_failure(config):
    assert CliRunner().invoke(main, ["check", config]).exit_code == 0
    away = CliRunner().invoke(main, ["check", config], env={"SOW_URL": "http://127.0.0.1:1"})
    assert (away.exit_code, "127.0.0.1:1" in away.stderr) == (1, True)
