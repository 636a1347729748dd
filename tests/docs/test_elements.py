"""The reference of elements: every element once, in its section."""

import re

from sow.config.elements.table import ROOT
from sow.engine.configurations import (
    CHANGEABLE_IN_COPIES,
    CHANGEABLE_IN_SOURCES,
    QUEUE_FIELDS,
    SECTION,
)
from sow.engine.reconfiguration import SETTINGS
from tests.cases import all_cases
from tests.docs.elements import is_one_row, reference
from tests.docs.generated import ROOT as REPOSITORY

PAGE = reference()


def section(heading):
    """What stands under a heading."""
    found = re.search(rf"^### {re.escape(heading)}\n\n(.*?)(?=^### |\Z)", PAGE, re.M | re.S)
    assert found, heading
    return found[1]


NAMED = [one for _, section in ROOT.walk() if is_one_row(section) for one in section.children]
"""Those that the row of their section names."""
BUILT = [
    (place, element)
    for place, element in ROOT.walk()
    if element.status == "implemented" and element is not ROOT
    if not any(element is one for one in NAMED)
]


@all_cases(("place", "element"), BUILT)
def test_each_element_has_a_row_in_its_section(place, element):
    path = [*place.removeprefix(ROOT.name).strip("/").split("/"), element.name]
    path = [part for part in path if part]
    headings = re.findall("^### (.*)$", PAGE, re.M)
    depth = max(n for n in range(len(path)) if not n or "/".join(path[:n]) in headings)
    heading = "/".join(path[:depth]) or "AMPSConfig or SOWConfig"
    name = "/".join(path[depth:])
    text = section(heading)
    for other in re.findall(rf"^As in (\S+): .*`{re.escape(name)}`", text, re.M):
        text += section(other)
    (row,) = [r for r in text.splitlines() if r.startswith(f"| `{name}`")]
    name, value, default, about = row.strip("| ").split(" | ", 3)
    assert ("(repeatable)" in name) == element.repeated
    assert value.split(" of `")[0] == (element.kind.name if element.kind else "section")
    assert all(f"`{one.name}`" in value for one in NAMED if one in element.children)
    assert default == (
        "required" if element.required else f"`{element.default}`".replace("``", "–")
    )
    assert about.startswith(element.about)


def test_what_a_reload_may_change_stands_under_reloading():
    changeable = [
        (SECTION.child("Topic"), CHANGEABLE_IN_SOURCES - QUEUE_FIELDS),
        (SECTION.child("Queue"), QUEUE_FIELDS),
        (SECTION.child("ConflatedTopic"), CHANGEABLE_IN_COPIES),
        (ROOT, SETTINGS),
    ]
    page = (REPOSITORY / "docs" / "configuration.md").read_text()
    (said,) = re.findall(r"^## Reloading\n(.*?)^## ", page, re.M | re.S)
    elements = {element.filling(field) for element, fields in changeable for field in fields}
    missing = sorted(name for name in elements if f"`{name}`" not in said)
    assert not missing, f"docs/configuration.md: {missing} need a row in the table under Reloading"
