"""The semantic rules name tests that there are, and nothing refers to what readers do not have."""

import re
from pathlib import Path

import pytest

from tests.cases import all_cases

ROOT = Path(__file__).parents[2]
SEMANTICS = ROOT / "docs" / "semantics.md"
RULES = {
    int(number): text
    for number, text in re.findall(
        r"^## Rule (\d+)\n(.*?)(?=^## |\Z)", SEMANTICS.read_text(), re.M | re.S
    )
}
FOLDERS = ("sow", "conflated_topics", "docs", "tests")
KINDS = (".py", ".md", ".xml", ".lark")
FILES = [
    path
    for path in [*ROOT.iterdir(), *(path for name in FOLDERS for path in (ROOT / name).rglob("*"))]
    if path.suffix in KINDS and path != Path(__file__)
]
"""Every text that a reader may be sent on from."""
DOCUMENTS = {path.name for path in FILES if path.suffix == ".md"}
TESTS = {
    name
    for path in FILES
    if path.is_relative_to(ROOT / "tests") and path.suffix == ".py"
    for name in re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text(), re.M)
}

FOREIGN = {
    "a paragraph of no page": r"§",
    "a rule by a letter": r"\((?:\w+ )?S\d+(?:-S\d+|, S\d+)*\)",
    "a contract that is not here": r"\bcontract [§S]|\b(?:our|[Tt]he) contract\b(?! test| of)",
}
"""What reads as a reference to a document that is not in the repository."""


def foreign(text):
    """References that lead nowhere, as sentences. Paragraphs of standards are nobody's to keep."""
    for paragraph in text.split("\n\n"):
        for what, pattern in FOREIGN.items():
            found = re.search(pattern, paragraph)
            if found and not (found[0] == "§" and "RFC" in paragraph):
                yield f"{what}: {paragraph[max(0, found.start() - 60) : found.end() + 20]}"
    for name in re.findall(r"[\w-]+\.md\b", text):
        if name not in DOCUMENTS:
            yield f"{name}: no such page"
    for number in re.findall(r"\bRules? (\d+)\b", text):
        if int(number) not in RULES:
            yield f"Rule {number}: no such rule"


def test_there_are_fourteen_rules():
    assert list(RULES) == list(range(1, 15))


@all_cases("number", RULES)
def test_a_rule_has_its_statement_reason_example_and_tests(number):
    text = RULES[number]
    assert text.lstrip().startswith("**")
    assert "*Why.*" in text
    assert "*Example.*" in text
    shown = text.partition("*Shown by*")[2]
    named = set(re.findall(r"`(test_\w+)`", shown))
    assert named
    assert named <= TESTS, f"no such test: {sorted(named - TESTS)}"


def test_the_table_leads_to_every_rule():
    head = SEMANTICS.read_text().partition("\n## ")[0]
    assert sorted(map(int, re.findall(r"\[(\d+)\]\(#rule-\1\)", head))) == sorted(RULES)


@pytest.mark.parametrize("folder", FOLDERS)
def test_nothing_refers_to_what_readers_do_not_have(folder):
    wrong = {
        str(path.relative_to(ROOT)): found
        for path in FILES
        if path.is_relative_to(ROOT / folder) and (found := list(foreign(path.read_text())))
    }
    assert not wrong


@pytest.mark.parametrize(
    "text",
    [
        "The rows of the log (contract §3, §8).",
        "Under a clock moved by hand (contract S1-S3).",
        "Policies, placement, matching (S12, S13)",
        "a type that the contract has and this version does not",
        "Elements of our contract that are not built yet.",
        "Budgets stand in §6.",
        "see blueprint.md for the plan",
        "as docs/semantics.md, Rule 15 says",
    ],
)
def test_what_leads_nowhere_is_found(text):
    assert list(foreign(text))


@pytest.mark.parametrize(
    "text",
    [
        "`Accept` with its quality values (RFC 9110 §12.5.1),\n`If-None-Match` (§13.1.2)",
        "a class beside `messages/json.py`; the contract test runs on it",
        "keeps its SowKeys (docs/semantics.md, Rule 5)",
        "the rules are 12 and 13 of docs/semantics.md",
        "/symbol = 'S1' AND (/px > 1)",
    ],
)
def test_what_leads_somewhere_is_let_through(text):
    assert not list(foreign(text))
