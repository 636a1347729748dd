import pytest

from sow.cli.report import pointed


def test_the_caret_stands_under_the_position():
    assert pointed("/a >> 1", 4) == "  /a >> 1\n      ^"


def test_the_caret_may_stand_behind_the_end():
    assert pointed("/a =", 4) == "  /a =\n      ^"


def test_only_the_broken_line_of_a_long_filter_is_shown():
    assert pointed("/a = 1 AND\n/b x\nOR", 14) == "  /b x\n     ^"


@pytest.mark.parametrize("position", [0, 30, 500, 999])
def test_of_a_long_line_the_part_around_the_position_is_shown(position):
    text = "".join(f"{number:04d}" for number in range(250))
    line, caret = pointed(text, position).split("\n")
    at = caret.index("^")
    assert len(line) <= 80
    assert line[at:].startswith(text[position : position + 4])


def test_a_tab_does_not_move_the_caret():
    assert pointed("\t/a x", 4) == "   /a x\n      ^"
