"""The reference of elements: every element once, under what becomes of it."""

import re

import pytest

from sow.config.elements.table import ROOT
from tests.cases import all_cases
from tests.docs.elements import HEADINGS_DEPTH, reference

PAGE = reference()


def section(heading):
    """What stands under a heading."""
    found = re.search(rf"^### {re.escape(heading)}\n\n(.*?)(?=^### |\Z)", PAGE, re.M | re.S)
    assert found, heading
    return found[1]


BUILT = [
    (place, element)
    for place, element in ROOT.walk()
    if element.status == "implemented" and element is not ROOT
]


@all_cases(("place", "element"), BUILT)
def test_each_element_has_a_row_in_its_section(place, element):
    path = [*place.removeprefix(ROOT.name).strip("/").split("/"), element.name]
    path = [part for part in path if part]
    depth = min(HEADINGS_DEPTH, len(path) - 1)
    heading = "/".join(path[:depth]) or "AMPSConfig or SOWConfig"
    name = "/".join(path[depth:])
    text = section(heading)
    for other in re.findall(rf"^As in (\S+): .*`{re.escape(name)}`", text, re.M):
        text += section(other)
    (row,) = [r for r in text.splitlines() if r.startswith(f"| `{name}`")]
    name, value, default, about = row.strip("| ").split(" | ", 3)
    assert ("(repeatable)" in name) == element.repeated
    assert value == (element.kind.name if element.kind else "section")
    assert default == (
        "required" if element.required else f"`{element.default}`".replace("``", "–")
    )
    assert about == element.about


@pytest.mark.parametrize(
    ("status", "heading"),
    [
        ("not yet", "Not available yet (an error)"),
        ("no effect", "Accepted without effect (a warning)"),
        ("foreign", "Elements of AMPS that are ignored (a warning)"),
        ("refused", "Elements of AMPS that would be missed (an error)"),
    ],
)
def test_what_is_not_ours_stands_under_what_becomes_of_it(status, heading):
    text = section(heading)
    named = sorted(re.findall(r"`([A-Za-z_]+)`", text))
    assert named == sorted(element.name for _, element in ROOT.walk() if element.status == status)
