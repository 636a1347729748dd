"""The reference of elements: every element once, in its section."""

import re

from sow.config.elements.table import ROOT
from tests.cases import all_cases
from tests.docs.elements import reference, says_all

PAGE = reference()


def section(heading):
    """What stands under a heading."""
    found = re.search(rf"^### {re.escape(heading)}\n\n(.*?)(?=^### |\Z)", PAGE, re.M | re.S)
    assert found, heading
    return found[1]


NAMED = [one for _, section in ROOT.walk() if says_all(section) for one in section.children]
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
    assert about == element.about
