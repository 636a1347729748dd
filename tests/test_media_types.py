"""Media types are written once: here it is seen that nobody writes them again."""

import ast
from pathlib import Path

import pytest

from sow import media_types

ROOT = Path(__file__).parents[1]
NAMES = {name: value for name, value in vars(media_types).items() if name.isupper()}
MODULES = [path for path in (ROOT / "sow").rglob("*.py") if path.stem != "media_types"]


def test_each_media_type_has_one_name():
    assert len(set(NAMES.values())) == len(NAMES)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_takes_media_types_from_where_they_stand(path):
    texts = {
        node.value for node in ast.walk(ast.parse(path.read_text())) if type(node) is ast.Constant
    }
    assert not texts & set(NAMES.values())
