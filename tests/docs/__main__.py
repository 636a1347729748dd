"""Write the generated pages and parts of pages, and the tables of the parser if they are of another
grammar: ``python -m tests.docs``, or ``make docs``."""

from sow.expressions import parser
from tests.docs.generated import PAGES, ROOT, generated

for page in PAGES:
    text = generated(page)
    if text != page.read_text():
        page.write_text(text)
        print(f"wrote {page.relative_to(ROOT)}")

if parser.saved_tables() is None:
    parser.TABLES.write_bytes(parser.tables())
    print(f"wrote {parser.TABLES.relative_to(ROOT)}")
