"""The rule of words: the project speaks the field's language, and not one of its own.

Each word below has a better one beside it. The rule holds for names (split at `_` and capitals,
those of files included), docstrings, comments, messages and documents. A text that is nothing but
the word is a member of a JSON document or a column, so a part of the protocol, as are the names in
`PROTOCOL`. The last tests plant what is refused and see that it is found.
"""

import io
import re
import subprocess
import tokenize
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORDS = {
    "anew": "again, from scratch",
    "arrears": "backlog, conflation budget",
    "asked": "requested, queried, called",
    "doorman": "request authenticator",
    "homeless": "orphaned",
    "of which": "a relative clause less: of those, its, with",
    "strand": "channel",
    "tells": "reports, sends, shows",
    "told": "sent, notified, reported",
    "who asks": "the client, the caller",
    "whom": "the client, the user",
    "whoever": "the client, the caller, anybody",
}
"""A word that is refused, and what to write instead."""
PROTOCOL = {
    "asked": {"docs/clients.md", "sow/client/http.py", "sow/client/sync/bridge.py"},
    "told": {
        "docs/http.md",
        "sow/server/api/explain.py",
        "sow/server/api/response_schemas.py",
        "sow/server/console/record_pane.js",
    },
}
"""Words that clients know as a field or a parameter, and the files that have it."""
GAP = r"[\s#]+"
"""Between two words, also over the end of a line of comments."""
PATTERNS = {word: re.compile(rf"\b{word.replace(' ', GAP)}s?\b", re.IGNORECASE) for word in WORDS}
ANY = re.compile("|".join(word.replace(" ", GAP) for word in WORDS), re.IGNORECASE)
"""Also within another word: most files have none at all, and need not be read word by word."""
FOLDERS = (
    *("sow", "conflated_topics", "docs", "examples", "integrations"),
    *("README.md", "CONTRIBUTING.md"),
)
KINDS = {".py", ".md", ".js", ".ts", ".xml"}


@cache
def files():
    """What the rule is for: the product and its documents, without what others have written."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *FOLDERS, "config.xml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    names = [name for name in listed.stdout.split("\n") if Path(name).suffix in KINDS]
    return [name for name in names if "vendored" not in name and (ROOT / name).is_file()]


def words_of(name):
    """An identifier or a path as words: `ToldColumns` and `told_columns` are `Told Columns`."""
    return re.sub(r"[_\W]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name))


def texts_of(name, text):
    """The places where words stand: a line's number and its text."""
    yield 0, words_of(name)
    if not name.endswith(".py"):
        yield from enumerate(text.split("\n"), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], words_of(token.string)
        elif token.type == tokenize.COMMENT or (
            token.type == tokenize.STRING and not re.fullmatch(r"\w*([\"'])\w*\1", token.string)
        ):
            yield token.start[0], token.string


def faults(name, text):
    """What a file should say otherwise, as sentences."""
    if not ANY.search(f"{name} {text}"):
        return
    for line, found in texts_of(name, text):
        for word, pattern in PATTERNS.items():
            if name not in PROTOCOL.get(word, ()) and pattern.search(found):
                yield f"{name}:{line} says {word!r}; write: {WORDS[word]}"


def test_the_product_and_its_documents_speak_the_words_of_the_field():
    assert [f for name in files() for f in faults(name, (ROOT / name).read_text())] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sow/doorman.py", ""),
        ("sow/x.py", "def told_columns(): ..."),
        ("sow/x.py", "class AskedOnce: ..."),
        ("sow/x.py", "# begins anew"),
        ("sow/x.py", '"""A client that is told."""'),
        ("sow/x.py", 'raise ValueError("nobody asked for it")'),
        ("docs/queries.md", "records, of which some go"),
    ],
)
def test_a_word_that_is_planted_is_found(name, text):
    assert list(faults(name, text))


@pytest.mark.parametrize("text", ['field = "told"', "tasked = masked", "retold = 1"])
def test_what_only_looks_like_one_is_let_through(text):
    assert not list(faults("sow/x.py", text))
