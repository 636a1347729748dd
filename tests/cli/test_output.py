"""What a terminal is not made to do by the texts of others."""

import io
import json
import sys

import click
import pytest
from click.testing import CliRunner

from sow.cli.options import command
from sow.cli.output import (
    harmless,
    json_text,
    lines_printable,
    pointed,
    printable,
    show,
    write_data,
)

HOSTILE = "a\x1b]0;owned\x07\x9b31m\u202eb\U000e0001\x7f"


class Output(io.TextIOWrapper):
    """Standard output, which is a terminal or is not."""

    def __init__(self, is_terminal):
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")
        self.is_terminal = is_terminal

    def isatty(self):
        return self.is_terminal

    def written(self):
        return self.buffer.getvalue()


def test_for_people_such_characters_are_shown_as_they_would_be_written():
    assert printable("a\x1b[2Jb\x07") == "a\\x1b[2Jb\\x07"
    assert printable(HOSTILE).isprintable()
    assert lines_printable("a\n\x1bb") == "a\n\\x1bb"


def test_in_a_terminal_data_says_the_same_and_does_nothing():
    text = json.dumps({"a": HOSTILE.translate({7: None, 27: None})}, ensure_ascii=False)
    shown = harmless(text)
    assert shown.isprintable()
    assert json.loads(shown) == json.loads(text)
    assert harmless("a\tb\nc\n") == "a\tb\nc\n"


def test_what_a_command_says_in_json_has_no_raw_control_characters():
    said = json_text({"\x80": [HOSTILE, "\x9f", "é"]})
    assert said.isprintable()
    assert "\\u0080" in said
    assert "é" in said
    assert json.loads(said) == {"\x80": [HOSTILE, "\x9f", "é"]}


@pytest.mark.parametrize("is_terminal", [True, False])
def test_data_that_is_piped_is_written_as_it_is(is_terminal, monkeypatch):
    out = Output(is_terminal)
    monkeypatch.setattr(sys, "stdout", out)
    data = f'{{"a":"{HOSTILE}"}}\n'.encode()
    write_data(data)
    assert (out.written() == data) is not is_terminal
    assert out.written().decode().replace("\n", "").isprintable() is is_terminal


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


@command("echo 1", "echo 1 --json")
@click.argument("count", type=int)
def echo(count):
    show({"count": count}, {0: "none", 1: lambda: click.echo("one")}.get(count, ["many", "more"]))


@pytest.mark.parametrize(
    ("count", "text"), [("0", "none\n"), ("1", "one\n"), ("2", "many\nmore\n")]
)
def test_a_result_is_a_line_or_lines_or_what_a_function_writes_or_json(count, text):
    assert CliRunner().invoke(echo, [count]).stdout == text
    assert CliRunner().invoke(echo, [count, "--json"]).stdout == f'{{"count":{count}}}\n'
