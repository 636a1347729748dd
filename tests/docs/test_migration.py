"""docs/migration.md says of each thing of AMPS what the tables of the code say, and its example is
taken over as it tells."""

import re
from dataclasses import replace

import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.config import load
from sow.config.diagnostics import MistakeError
from sow.config.elements.action import FOREIGN_MODULES
from sow.config.elements.security import SECURITY
from sow.config.elements.table import INCLUDE, ROOT
from sow.config.value_types import count_of, duration_us, size_bytes
from sow.expressions import AGGREGATES, FUNCTIONS
from sow.messages import MESSAGE_TYPES, MESSAGE_TYPES_REFUSED
from sow.protocol import wire
from sow.protocol.commands import (
    ACKS,
    ACKS_LATER,
    COMMANDS,
    OPTIONS,
    OPTIONS_IGNORED,
)
from tests.docs.blocks import ROOT as TOP
from tests.docs.blocks import fenced
from tests.edge.serving import Running

PAGE = (TOP / "docs/migration.md").read_text()
GUIDE = TOP / "docs/guide"


def section(title):
    """What stands under a heading."""
    (found,) = re.findall(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", PAGE, re.M | re.S)
    return found


def names_in(cell):
    return re.findall(r"`([^`]+)`", cell)


def rows(text):
    """The rows of the tables in a text: names, what is said of them here, and why."""
    for line in re.findall(r"^\| (`.*)\|$", text, re.M):
        names, here, *why = line.split(" | ")
        yield names_in(names), here.strip(" |"), "".join(why).strip()


def said(text):
    """What is said of each name."""
    found = [(name, here) for names, here, _ in rows(text) for name in names]
    assert len(dict(found)) == len(found), "a name stands twice"
    return dict(found)


def of_each_table(title, count):
    """The tables of a section, each by itself."""
    tables = re.split(r"\n\n(?=\|)", "\n" + section(title))[1:]
    assert len(tables) == count
    return tables


SECTIONS = {
    title: next(e for place, e in ROOT.walk() if f"{place}/{e.name}".endswith(f"/{title}"))
    for title in re.findall(r"^### (\S+)$", PAGE.replace("### AMPSConfig", ""), re.M)
} | {ROOT.name: ROOT}
STATUSES = {
    "same": ("implemented",),
    "other form": ("foreign", "refused"),
    "no effect": ("no effect",),
    "missing": ("not yet", "foreign", "refused"),
}
"""What the table of elements says of what the page calls so."""


@pytest.mark.parametrize("title", SECTIONS)
def test_each_element_is_what_the_table_says(title):
    parent = SECTIONS[title]
    for name, verdict in said(section(title)).items():
        known = INCLUDE if name == INCLUDE.name else parent.child(name)
        assert known is not None, name
        assert known.status in STATUSES[verdict], (name, verdict)


def test_each_element_of_the_table_stands_on_the_page():
    own = set(names_in(section("Of this server alone")))
    for title, parent in SECTIONS.items():
        known = {name for child in parent.children for name in child.names}
        missing = known - said(section(title)).keys() - own
        assert not missing, (
            f"docs/migration.md: {sorted(missing)} need a row under {title}, or a place under "
            "'Of this server alone'"
        )
    known = {name for _, element in ROOT.walk() for name in element.names}
    assert own <= known


def test_what_the_table_says_of_ours_is_of_this_server_alone():
    amps = {name for title in SECTIONS for name in said(section(title))}
    assert not amps & set(names_in(section("Of this server alone")))


def test_what_is_missing_or_other_says_why():
    for names, here, why in rows(PAGE):
        if here in ("missing", "other form"):
            assert why, names


def test_the_words_of_the_tables_are_explained():
    explained = re.findall(r"^\| ([a-z ]+) \| (?!means)", PAGE.partition("\n## ")[0], re.M)
    assert explained == list(STATUSES)


def agrees(verdicts, known, later):
    """Whether just what is known is called the same, and nothing is left out."""
    verdicts = {name: verdict for name, verdict in verdicts.items() if name not in OPTIONS_IGNORED}
    same = {name for name, verdict in verdicts.items() if verdict == "same"}
    missing = {name for name, verdict in verdicts.items() if verdict == "missing"}
    assert same | missing == verdicts.keys()
    assert same <= set(known), f"not there: {sorted(same - set(known))}"
    assert not missing & set(known), f"there now: {sorted(missing & set(known))}"
    assert set(later) <= missing, f"refused by name and not on the page: {set(later) - missing}"
    return set(known) - same


def of_this_server_alone(title):
    """What a section names, beside its tables, as this server's own."""
    sentences = [line for line in section(title).split("\n\n") if "of this server alone" in line]
    return {name for sentence in sentences for name in names_in(sentence)}


ALONE = (
    "docs/migration.md, {0}: what is not in the table, {1}, has to be the names of the paragraph "
    "with the words 'of this server alone'"
)


def test_commands_are_those_of_the_table():
    commands, headers, acks = of_each_table("Commands", 3)
    assert agrees(said(commands), COMMANDS, ()) == set()
    fields = {name for here in said(headers).values() for name in names_in(here)}
    assert fields <= wire.HEADER_FIELDS
    # Names of sessions, who numbers, tokens, acting for others, bytes, moments: of this protocol
    # alone.
    assert wire.HEADER_FIELDS - fields == {
        "n",
        "enc",
        "sequence",
        "session",
        "seen",
        "select",
        "projection",
        "grouping",
        "token",
        "as",
        "as_of",
        "min_bookmark",
        "wait",
        "stale",
    }
    assert agrees(said(acks), ACKS, ACKS_LATER) == set()


def test_options_are_those_of_the_table():
    (options,) = of_each_table("Options", 1)
    own = {"positions", "gaps", "as_of", "last", "withdrawn"}
    assert agrees(said(options), OPTIONS, ()) == own
    ignored = [name for name, verdict in said(options).items() if verdict == "no effect"]
    assert sorted(ignored) == sorted(OPTIONS_IGNORED)


def test_functions_are_those_of_the_table():
    (functions,) = of_each_table("Functions", 1)
    alone = agrees(said(functions), [*FUNCTIONS, *AGGREGATES], ())
    assert alone == of_this_server_alone("Functions"), ALONE.format("Functions", alone)


def test_actions_are_those_that_the_check_knows():
    (actions,) = of_each_table("Actions", 1)
    assert said(actions).keys() == {word for words in FOREIGN_MODULES.values() for word in words}


def test_who_may_come_in_is_said_where_the_check_says_it():
    (why,) = (why for names, _, why in rows(section("AMPSConfig")) if "Entitlement" in names)
    assert "Security" in why
    assert "not there yet" not in why
    for name in ("Authentication", "Entitlement"):
        assert f"<{SECURITY.name}>" in ROOT.child(name).about


def test_units_are_read_as_the_page_says():
    intervals, sizes, counts = (names for names, *_ in rows(section("Elements")) if "M" in names
                                or "ms" in names)  # fmt: skip
    times = [duration_us(f"1000{unit}") for unit in intervals]
    assert times == [1, 1000, 10**6, *(10**9 * n for n in (1, 60, 3600, 86400, 604800))]
    powers = [1, 2, 3, 4]
    assert [size_bytes(f"2{unit}") for unit in sizes] == [2 * 1024**n for n in powers * 2]
    assert [count_of(f"2{unit}") for unit in counts] == [2000, 2_000_000]
    with pytest.raises(MistakeError, match="no unit"):
        duration_us("5000")
    assert (duration_us("0"), size_bytes("5000")) == (0, 5000)


def test_message_types_are_those_of_the_table():
    (types,) = of_each_table("Message types", 1)
    alone = agrees(said(types), MESSAGE_TYPES, MESSAGE_TYPES_REFUSED)
    assert alone == of_this_server_alone("Message types"), ALONE.format("Message types", alone)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"ABS": "missing"}, "there now"),
        ({"ABS": "same", "NOPE": "same"}, "not there"),
        ({"ABS": "same"}, "not on the page"),
    ],
)
def test_a_page_that_has_become_untrue_is_found(wrong, says):
    with pytest.raises(AssertionError, match=says):
        agrees(wrong, ["ABS"], ["SUM"])


def test_the_example_is_answered_with_what_the_page_shows(monkeypatch):
    monkeypatch.chdir(GUIDE)
    (shown,) = re.findall(r"^```text\n(.*?)^```", PAGE, re.M | re.S)
    result = CliRunner().invoke(main, ["check", "amps.xml"])
    assert (result.exit_code, result.stdout) == (1, shown)


def commands_of(block):
    """The commands of a program, each with the names of its headers."""
    for line in block.text.splitlines():
        name, _, headers = line.partition(" ")
        yield name, re.findall(r"(?:^| )([a-z_]+)=(?! )", headers.strip())


@pytest.mark.parametrize(
    "block", fenced("amps", [TOP / "docs/migration.md"]), ids=lambda b: b.place
)
def test_a_program_is_shown_by_commands_and_headers_that_the_tables_name(block):
    commands, headers, _ = of_each_table("Commands", 3)
    for name, given in commands_of(block):
        assert name == "connect" or name in said(commands), name
        assert set(given) <= said(headers).keys(), given


def test_each_program_stands_before_what_became_of_it():
    """One in the words of AMPS, then one that `test_examples.py` runs."""
    languages = re.findall(r"^```(\w+)$", section("A program, taken over"), re.M)
    assert languages == ["amps", "python"] * (len(languages) // 2)
    assert languages


@pytest.mark.edge
def test_the_example_that_was_taken_over_starts_and_answers(tmp_path):
    loaded = load(str(GUIDE / "migrated.xml")).checked
    assert loaded.findings == ()
    running = Running(replace(loaded.configuration, port=0), tmp_path)
    try:
        order = {"orderId": "o-1", "symbol": "ACME", "status": "open", "account": "desk"}
        hidden = order | {"orderId": "o-2", "account": "PROP-1"}
        with running.socket() as socket:
            socket.ask({"c": "subscribe", "t": "orders-C"})
            assert running.publish("orders", order, hidden).status == 200
            assert socket.until(c="p")[-1]["d"] == order
        assert running.records("orders-C") == [order]
        assert running.records("orders", filter="/orderId = 'o-2'") == [hidden]
        assert running.post("fills", b"17=f-1|55=ACME|", "application/octet-stream").status == 200
        assert running.publish("/books/ACME", {"level": 1, "bid": 10.5}).status == 200
        topics = {topic["name"]: topic for topic in running.get("/v1/topics").json}
        assert topics["/books/ACME"]["of_pattern"] == "books"
        assert "/books/ACME-C" in topics
    finally:
        running.close()
