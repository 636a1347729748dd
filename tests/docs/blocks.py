"""The blocks of code on the pages: what language each is in, and where it stands."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
README_ADDRESS = "http://127.0.0.1:8090"
"""Of README's server: another one than the demo's, beside which it runs."""

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
_INDENTED = re.compile(r"^    .*(?:\n(?:    .*)?)*", re.M)


class Block(NamedTuple):
    """A block of a page; `line` is the line that it begins in."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def fenced(language=None, pages=PAGES):
    """The blocks between fences, in one language or in any."""
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2])
        for page in pages
        for text in [page.read_text()]
        for found in _FENCED.finditer(text)
        if language in (None, found[1])
    ]


def indented(pages=PAGES):
    """The blocks that are set off by blanks alone; what is between fences is none of them."""
    found = []
    for page in pages:
        text = _FENCED.sub(lambda fence: "\n" * fence[0].count("\n"), page.read_text())
        found += [
            Block(page, text.count("\n", 0, block.start()) + 1, "", block[0])
            for block in _INDENTED.finditer(text)
        ]
    return found


def shell_lines():
    """Each line of the pages that is for a shell and not run: where it stands, and the line.

    What stands behind `$` is a command too; `console` blocks are run elsewhere.
    """
    first = ("make", "sow", "python", "pip")
    for block in (*fenced("sh"), *indented()):
        text = block.text.replace("\\\n", " ")
        for line in text.splitlines():
            words = line.split("#")[0].removeprefix("    ").strip().removeprefix("$ ").split()
            if words and words[0] in first:
                yield block.place, words
