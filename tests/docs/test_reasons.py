"""Every number at the top of a module says why it is that number."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = [
    path for folder in ("conflated_topics", "sow") for path in sorted((ROOT / folder).rglob("*.py"))
]


def is_number(node):
    """A number as it is written, or a product of such."""
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def without_reason(source):
    """Names of numbers that have no comment above or beside them and no text below."""
    lines, body = source.split("\n"), ast.parse(source).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        if not (isinstance(node, ast.Assign) and is_number(node.value)):
            continue
        told = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        above = lines[node.lineno - 2].startswith("#")
        if not (told or above or "#" in lines[node.lineno - 1]):
            yield ast.unparse(node.targets[0])


def test_a_number_says_why():
    found = {path: list(without_reason(path.read_text())) for path in MODULES}
    assert {str(path.relative_to(ROOT)): names for path, names in found.items() if names} == {}


@pytest.mark.parametrize("source", ["ROWS_MAX = 1_000", "A = 1\nBYTES = -2 * 1024**2\n", "S = 0.5"])
def test_a_number_without_a_reason_is_found(source):
    assert list(without_reason(source))


@pytest.mark.parametrize(
    "source",
    [
        'ROWS_MAX = 1_000\n"""Why."""',
        "# Why.\nROWS_MAX = 1_000",
        "ROWS_MAX = 1_000  # why",
        "KINDS = NUMBER, TEXT = range(2)",
        "NAMES = ('a', 'b')",
    ],
)
def test_one_with_a_reason_and_what_is_no_number_are_let_through(source):
    assert not list(without_reason(source))
