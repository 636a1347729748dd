"""What is made in steps is what would be made at once."""

from sow.messages import stepwise_columns
from sow.messages.stepwise_columns import made, parts, pieces


def test_what_is_to_be_done_apart_is_done_and_sent_back():
    def steps():
        yield None
        first = yield lambda: 2
        nothing = yield None
        assert nothing is None
        second = yield lambda: first + 1
        return first, second

    assert made(steps()) == (2, 3)


def test_items_come_in_parts(monkeypatch):
    monkeypatch.setattr(stepwise_columns, "PART_ROWS", 2)
    assert list(parts(b"abcde")) == [b"ab", b"cd", b"e"]
    assert list(parts([])) == []


def test_bodies_come_in_pieces_of_so_many_bytes_or_one_body(monkeypatch):
    monkeypatch.setattr(stepwise_columns, "PART_ROWS", 4)
    monkeypatch.setattr(stepwise_columns, "PIECE_BYTES", 5)
    bodies = [b"12", b"345", b"", b"6", b"7890abc", b"d", b"efgh", b"i"]
    assert list(pieces(bodies)) == [
        [b"12", b"345", b""],
        [b"6"],
        [b"7890abc"],
        [b"d", b"efgh"],
        [b"i"],
    ]
    assert list(pieces([])) == []
