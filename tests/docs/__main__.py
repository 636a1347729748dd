"""Write the generated pages and parts of pages: ``python -m tests.docs``, or ``make docs``."""

from tests.docs.generated import PAGES, ROOT, generated

for page in PAGES:
    text = generated(page)
    if text != page.read_text():
        page.write_text(text)
        print(f"wrote {page.relative_to(ROOT)}")
