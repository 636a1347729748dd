"""One name, one meaning: a constant that other modules import is called like no other one."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATHS = [path for ours in ("sow", "conflated_topics") for path in (ROOT / ours).rglob("*.py")]
ALIKE = {
    "NULL": "the types of BFlat are numbered and used where BFlat is read and nowhere else",
    "TEXT": "a kind of value in config.xml is always written with its module, kinds.TEXT",
    "WRITES": "uses of an option are named where options are listed and nowhere else",
}
"""Names that have two meanings all the same, and why nobody takes one for the other."""


def constants_of(tree):
    """The constants that a module sets at its top level."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        for inner in (inner for target in targets for inner in ast.walk(target)):
            if isinstance(inner, ast.Name) and inner.id.isupper() and len(inner.id) > 1:
                yield inner.id


def ambiguous(modules):
    """Constants that are imported by name from one module while another has one of that name."""
    owners, imported = defaultdict(set), set()
    for name, source in modules.items():
        tree = ast.parse(source)
        for constant in constants_of(tree):
            owners[constant].add(name)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                imported |= {alias.name for alias in node.names if alias.name.isupper()}
    return {name: where for name, where in owners.items() if len(where) > 1 and name in imported}


def test_a_constant_that_is_imported_is_called_like_no_other():
    found = ambiguous({str(path.relative_to(ROOT)): path.read_text() for path in PATHS})
    assert found.keys() <= ALIKE.keys(), {name: found[name] for name in found.keys() - ALIKE.keys()}


def test_what_is_planted_is_found():
    planted = {"a": "GONE = 1", "b": "GONE: str = 'gone'\nHERE = 2", "c": "from a import GONE"}
    assert ambiguous(planted) == {"GONE": {"a", "b"}}
    assert not ambiguous({"a": "GONE = 1", "b": "GONE = 2"})
