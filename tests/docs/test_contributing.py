"""What the pages say of the code is so: the files that they name are there, and what a recipe names
is in them."""

import re

from tests.cases import all_cases
from tests.docs.generated import PAGES, ROOT

MODULES = {
    str(path.relative_to(ROOT))
    for folder in ("sow", "conflated_topics", "tests", "docs")
    for path in (ROOT / folder).rglob("*.py")
} | {path.name for path in ROOT.glob("*.py")}


@all_cases("page", PAGES)
def test_a_page_names_files_that_are_there(page):
    named = re.findall(r"`((?:[\w.]+/)*\w+\.py)`", page.read_text())
    gone = {n for n in named if not any(m == n or m.endswith(f"/{n}") for m in MODULES)}
    assert not gone, f"{page.name} names modules that are not there: {sorted(gone)}"


RECIPES = (ROOT / "CONTRIBUTING.md").read_text().partition("## How to add\n")[2]
STEPS = re.split(r"\n(?=[1-9]\. |\* |#)", RECIPES)


@all_cases("step", STEPS)
def test_a_table_is_in_a_file_that_its_step_names(step):
    named = re.findall(r"`((?:[\w.]+/)*\w+\.py)`", step)
    files = [m for m in MODULES if any(f"/{m}".endswith(f"/{name}") for name in named)]
    text = "\n".join((ROOT / file).read_text() for file in files)
    tables = re.findall(r"`([A-Z_]{4,}…?)`", step)
    lost = [t for t in tables if not re.search(rf"^{t}\b".replace(r"…\b", ""), text, re.M)]
    assert not lost, f"CONTRIBUTING.md, {step[:40]!r}: {lost} are in none of {named}"
