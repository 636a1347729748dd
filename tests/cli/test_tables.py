"""Tables of figures, whatever room there is for them."""

import asyncio
import io

from rich.console import Console

from sow.cli import tables
from sow.cli.tables import Column, figures, fitted, progress, waiting

COLUMNS = (Column("topic"), Column("in", is_number=True), Column("pending", is_number=True))
ROWS = ({"topic": "a-long-name-of-a-topic", "in": "1,234", "pending": "5"}, {"topic": "b"})


def drawn(width, rows=ROWS, **more):
    console = Console(file=io.StringIO(), width=width)
    console.print(figures(COLUMNS, rows, width, **more))
    return console.file.getvalue().splitlines()


def test_numbers_stand_at_the_right_and_what_is_missing_is_empty():
    head, first, second = drawn(80)
    assert head.split() == ["topic", "in", "pending"]
    assert first.index("1,234") + 5 == head.index("in") + 2
    assert second.split() == ["b"]


def test_where_there_is_no_room_the_last_columns_are_left_out_and_the_first_is_cut():
    assert [column.name for column in fitted(COLUMNS, ROWS, 22)] == ["topic", "in", "pending"]
    assert [column.name for column in fitted(COLUMNS, ROWS, 21)] == ["topic", "in"]
    assert [column.name for column in fitted(COLUMNS, ROWS, 3)] == ["topic"]
    for width in range(15, 60):
        lines = drawn(width)
        assert max(map(len, lines)) <= width
        assert "1,234" in lines[1], "a figure is shown as a whole or not at all"


def test_what_topics_are_called_moves_no_cursor():
    assert "\x1b" not in "".join(drawn(80, [{"topic": "\x1b[2J"}]))
    assert "a\\u202eb\\x07 " in drawn(80, [{"topic": "a\u202eb\x07"}])[1], "there is room for it"


def test_progress_is_for_a_terminal_alone(capsys):
    with progress("loading", 3, shown="") as advance:
        advance(1)
        advance(2, shown="two")
    assert capsys.readouterr() == ("", "")


def test_what_is_waited_for_long_is_said_until_it_is_there(monkeypatch):
    monkeypatch.setattr(tables, "PATIENCE_S", 0)
    monkeypatch.setattr(tables, "SAID_EVERY_S", 0)

    async def work():
        said, twice = [], asyncio.Event()

        def say(text):
            said.append(text)
            if len(said) == 2:
                twice.set()

        async with waiting("computing t", say) as over:
            await twice.wait()
            over()
            over()
            length = len(said)
            await asyncio.sleep(0)
            assert len(said) == length
        return said

    assert set(asyncio.run(work())) == {"computing t: 0 s", ""}


def test_what_is_there_soon_or_with_nobody_to_see_it_is_not_spoken_of(capsys):
    async def work():
        said = []
        async with waiting("computing t", said.append):
            pass
        async with waiting(None, said.append) as over:
            over()
        async with waiting("computing t"):
            await asyncio.sleep(0)
        return said

    assert asyncio.run(work()) == [""]
    assert capsys.readouterr() == ("", "")
