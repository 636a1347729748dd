"""Media types are written once: here it is seen that nobody writes them again."""

import ast
from pathlib import Path

from sow.core import media_types

ROOT = Path(__file__).parents[2]
NAMES = {name: value for name, value in vars(media_types).items() if name.isupper()}
MODULES = [path for path in (ROOT / "sow").rglob("*.py") if path.stem != "media_types"]


def test_each_media_type_has_one_name():
    assert len(set(NAMES.values())) == len(NAMES)


def written(source):
    """The media types that a module writes out."""
    if not any(value in source for value in NAMES.values()):
        return set()  # most need not be parsed
    texts = {node.value for node in ast.walk(ast.parse(source)) if type(node) is ast.Constant}
    return texts & set(NAMES.values())


def test_modules_take_media_types_from_where_they_stand():
    found = {str(path.relative_to(ROOT)): written(path.read_text()) for path in MODULES}
    assert {place: texts for place, texts in found.items() if texts} == {}


def test_one_that_is_written_out_again_is_found():
    assert written('KIND = "application/json"')
    assert not written('ABOUT = "as application/json is"')
