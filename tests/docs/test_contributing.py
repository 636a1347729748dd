"""What the pages say of the code is so: the files that they name are there."""

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
