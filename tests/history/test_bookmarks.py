"""Every form of a bookmark on a small log, against what the documentation says of it."""

from itertools import product

import pytest

from sow.errors import AnotherLog, ClientError, NotKept, NotReached
from sow.history.bookmarks import (
    going_on,
    is_range,
    is_time,
    parse_bookmark,
    parse_moment,
    parse_start,
    turn_time,
    with_log,
)
from sow.store.protocols import KeptCheckpoint, LogEntry
from tests.cases import all_cases
from tests.store.in_memory import MemoryJournal

MINUTE_US = 60_000_000
LOG, OTHER = MemoryJournal.log_id, "00000000000000bb"
TIMES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 4}
"""Change and its minute; 1 and 2 are one entry of the log, and so are 4 and 5."""
NEWEST = max(TIMES)
MOMENTS = {
    "19700101T000000": 0,
    "1970-01-01": 0,
    "19700101T000100Z": 1,
    "1970-01-01T00:02:00+00:00": 2,
    "1970-01-01T01:02:00+01:00": 2,
    "19700101T000300.000000Z": 3,
    "1970-01-01T00:04": 4,
    "19700101T000500": 5,
}
NUMBERS = {str(seq): seq for seq in range(NEWEST + 3)}
PLACES = ("", "now", "0|1|", *NUMBERS, *MOMENTS)


def journal(first_seq=1):
    made = MemoryJournal(retention_bytes=0)
    for seqs in ((1, 2), (3,), (4, 5), (6,)):
        bodies = [b"{}"] * len(seqs)
        made.append([LogEntry("publish", "t", seqs[0], TIMES[seqs[0]] * MINUTE_US, None, bodies)])
    made.trim(0, first_seq)
    assert made.first_seq == first_seq
    return made


def parsed(text, first_seq=1, not_found="fail"):
    """The changes that a bookmark asks for, or why it is refused."""
    try:
        span = parse_bookmark(text, journal(first_seq), NEWEST, not_found)
    except ClientError as error:
        return f"{error.reason}: {error.detail}"
    until = NEWEST if span.until is None else span.until
    return list(range(span.after + 1, until + 1))


def is_after_start(seq, place, bracket):
    if place in ("", "0"):
        return True
    if place in ("now", "0|1|"):
        return False
    here, there = (seq, NUMBERS[place]) if place in NUMBERS else (TIMES[seq], MOMENTS[place])
    return here > there or (here == there and bracket == "[")


def is_before_end(seq, place, bracket):
    if place in ("", "now", "0|1|"):
        return True
    here, there = (seq, NUMBERS[place]) if place in NUMBERS else (TIMES[seq], MOMENTS[place])
    return here < there or (here == there and bracket == "]")


def is_kept(place, bracket, first_seq):
    """Whether it is known what came after a start; a number must be one that is kept."""
    if place not in NUMBERS or place == "0":
        return True
    return first_seq - 1 <= NUMBERS[place] - (bracket == "[") <= NEWEST


def is_reversed(start, end):
    """Ends that can be compared without a log stand the wrong way round."""
    kinds = [kind for kind in (NUMBERS, MOMENTS) if {start, end} <= kind.keys()]
    return any(kind[start] > kind[end] for kind in kinds)


@pytest.mark.parametrize("first_seq", [1, 4])
def test_every_range_holds_what_its_ends_say(first_seq):
    for opening, start, end, closing in product("[(", PLACES, PLACES, "])"):
        for blank in ("", " "):
            text = f"{opening}{blank}{start}{blank}:{blank}{end}{blank}{closing}"
            found = parsed(text, first_seq)
            last = NUMBERS.get(end, 0) - (closing == ")")
            if is_reversed(start, end):
                assert f"ends at {end}, before its beginning {start};" in found, text
            elif last > NEWEST:
                assert "leave the end out" in found, text
            elif not is_kept(start, opening, first_seq):
                assert "is not kept" in found, text
            else:
                assert found == [
                    seq
                    for seq in TIMES
                    if seq >= first_seq
                    and is_after_start(seq, start, opening)
                    and is_before_end(seq, end, closing)
                ], text


@pytest.mark.parametrize("first_seq", [1, 4])
def test_every_place_begins_after_a_bookmark_and_with_a_time(first_seq):
    for place in PLACES[1:]:
        found = parsed(place, first_seq)
        bracket = "(" if place in NUMBERS else "["
        if is_kept(place, bracket, first_seq):
            expected = [s for s in TIMES if s >= first_seq and is_after_start(s, place, bracket)]
            assert found == expected, place
        else:
            assert "is not kept" in found, place


def test_a_start_that_has_no_end_of_its_own_is_any_form_but_a_range():
    made = journal()
    for place in PLACES[1:]:
        if is_kept(place, "(" if place in NUMBERS else "[", 1):
            after = parse_bookmark(place, made, NEWEST).after
            assert parse_start("as_of", place, made, NEWEST, "write one moment") == after
    for text in ("[1:5]", " (1:)", "[x]", "[1970-01-01:1970-01-02)"):
        with pytest.raises(ClientError) as caught:
            parse_start("as_of", text, made, NEWEST, "write one moment")
        assert caught.value.detail == f"as_of={text} is a range; write one moment"


def test_a_list_begins_after_the_oldest():
    for one, other in product(PLACES[1:], repeat=2):
        parts = [parsed(one), parsed(other)]
        if all(isinstance(part, list) for part in parts):
            assert parsed(f"{one}, {other}") == max(parts, key=len), (one, other)


def test_a_number_may_name_its_log_wherever_it_stands():
    for place in NUMBERS:
        assert parsed(f"{LOG}-{place}") == parsed(place)
        for text in ("{0}:", ":{0}", "{0}:{0}", "{0}:now", "1:{0}", "{0}:1970-01-01T00:04"):
            for opening, closing in product("[(", "])"):
                bare = f"{opening}{text.format(place)}{closing}"
                named = f"{opening}{text.format(f'{LOG}-{place}')}{closing}"
                assert parsed(named).__class__ is parsed(bare).__class__, named
                assert parsed(named) == parsed(bare) or isinstance(parsed(bare), str), named
        assert parsed(f"{LOG}-{place}, 6, {LOG}-3") == parsed(f"{place},6,3")


@all_cases("not_found", ["fail", "epoch", "now"])
@all_cases(
    "text",
    ["{}-0", "{}-3", "{}-777", " {}-3 ", "[{}-1:]", "(1:{}-3)", "[:{}-9]", "3,{}-3", "now, {}-3"],
)
def test_a_number_of_another_log_is_refused_whatever_it_is(text, not_found):
    with pytest.raises(AnotherLog) as caught:
        parse_bookmark(text.format(OTHER), journal(), NEWEST, not_found)
    assert (caught.value.reason, caught.value.status) == ("another log", 409)
    assert LOG in caught.value.detail
    assert OTHER in caught.value.detail


@pytest.mark.parametrize(
    "text",
    ["aa-3", f"{LOG}-", f"{LOG}-now", f"{LOG}-x", f"{LOG.upper()}-3", f"-{LOG}-3", f"{LOG}--3"],
)
def test_what_does_not_name_a_log_as_logs_are_named_is_no_bookmark(text):
    assert "is not a bookmark" in parsed(text)
    assert not is_time(text)


@all_cases(
    ("text", "named"),
    [
        ("3", "L-3"),
        (" 3 ", "L-3"),
        ("L-3", "L-3"),
        ("0", "0"),
        ("now", "now"),
        ("0|1|", "0|1|"),
        ("19700101T000100Z", "19700101T000100Z"),
        ("1970-01-01", "1970-01-01"),
        ("3,now,L-4,5", "L-3,now,L-4,L-5"),
        ("[3:5)", "[L-3:L-5)"),
        ("(:5]", "(:L-5]"),
        ("[3:]", "[L-3:]"),
        ("[1970-01-01T00:01:5]", "[1970-01-01T00:01:L-5]"),
        ("[x:5]", "[x:5]"),
        ("nonsense", "nonsense"),
    ],
)
def test_numbers_are_sent_with_the_name_of_their_log(text, named):
    text, named = text.replace("L", OTHER), named.replace("L", OTHER)
    assert with_log(text, OTHER) == named
    assert with_log(named, LOG) == named, "a name that is there stays"
    assert with_log(text, "") == text


def test_who_goes_on_in_a_range_of_a_log_asks_for_the_rest_of_it():
    assert going_on(f"[{LOG}-1:{LOG}-9]", f"{LOG}-7") == f"({LOG}-7:{LOG}-9]"


@pytest.mark.parametrize("not_found", ["epoch", "now"])
def test_what_is_not_kept_is_made_up_for_as_was_said(not_found):
    for text in ("1", "[1:5]", "(1:]", "[3:4)", "[1:)"):
        assert "is not kept" in parsed(text, 4)
        until = {"[1:5]": 5, "[3:4)": 3}.get(text, NEWEST)
        expected = list(range(4, until + 1)) if not_found == "epoch" else []
        assert parsed(text, 4, not_found) == expected, text


@all_cases(
    "text",
    ["", "x", "1,", "[1]", "[1:2", "1:2", "[1:2],[3:4]", "[a:2]", "[1:b]", "[1,2:3]", "-1", "[::]"],
)
def test_what_is_no_bookmark_is_refused_with_what_to_write(text):
    assert "is not a bookmark; write one that the server gave" in parsed(text)


def test_a_long_text_is_not_sent_back():
    assert len(parsed("9" * 10_000)) < 300
    assert len(parsed(f"[{'x:' * 5_000}]")) < 300
    assert len(parsed(f"[{':' * 10_000_000}]")) < 300, "and costs nobody anything"
    assert "at most 100" in parsed("1," * 1_000_000)


def test_microseconds_are_not_rounded():
    made = MemoryJournal()
    at_us = 1_795_253_400_000_001
    for seq in range(1, 1001):
        made.append([LogEntry("publish", "t", seq, at_us + seq, None, [b"{}"])])
    for text, seq in (("2026-11-21T09:30:00.000777Z", 776), ("20261121T093000.000312", 311)):
        assert parse_bookmark(text, made, 1000).after == seq - 1


def test_however_many_times_are_named_the_log_is_halved_once_or_twice(monkeypatch):
    made, read, reads = MemoryJournal(), MemoryJournal.read, []
    for seq in range(1, 1001):
        made.append([LogEntry("publish", "t", seq, seq * MINUTE_US, None, [b"{}"])])

    def counted(journal, after):
        reads.append(after)
        return read(journal, after)

    monkeypatch.setattr(MemoryJournal, "read", counted)
    times = [f"19700101T00{minute:02}00" for minute in range(59, 9, -1)]
    assert parse_bookmark(",".join([*times, "now", "900", *times[1:-1]]), made, 1000).after == 9
    assert len(reads) <= 10
    reads.clear()
    span = parse_bookmark(f"[{times[-1]}:{times[0]}]", made, 1000)
    assert (span.after, span.until) == (9, 59)
    assert len(reads) <= 2 * (10 + 1)


@pytest.mark.parametrize(
    ("text", "requested"),
    [
        ("0", "7"),
        ("now", "7"),
        ("1,2", "7"),
        ("[1:9]", "(7:9]"),
        ("(1:)", "(7:)"),
        ("[1970-01-01T00:01:00:1970-01-01T00:04:00)", "(7:1970-01-01T00:04:00)"),
    ],
)
def test_who_goes_on_asks_for_the_rest(text, requested):
    assert going_on(text, "7") == requested


@pytest.mark.parametrize(
    ("text", "is_so"),
    [("0", False), ("20261121", False), ("now", False), ("x", False), (" 20261121T093000", True)],
)
def test_what_depends_on_when_things_came_is_a_time(text, is_so):
    assert is_time(text) is is_so


@pytest.mark.parametrize(
    "text", ["[1:5]", " (1:5) ", "[20261121T093000Z:]", "(00000000000000aa-3:]"]
)
def test_a_range_is_known_from_what_has_no_end(text):
    assert is_range(text)
    assert not any(map(is_range, ("5", "now", "1,2", "00000000000000aa-3", "20261121T093000Z")))


def test_a_place_in_what_was_sent_has_a_time():
    texts = ("7.12", "00000000000000aa-7.12", "7", "now", "7.12,8", "")
    assert [*map(turn_time, texts)] == [12, 12, 0, 0, 0, 0]


class TestMoments:
    """The moment that a text names: after which change, and at which time."""

    def of(self, text, first_seq=1, now=9):
        found = parse_moment("as_of", text, journal(first_seq), NEWEST, now * MINUTE_US)
        return found.seq, found.time_us // MINUTE_US

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("0", (0, 0)),
            ("2", (2, 1)),
            ("3", (3, 2)),
            ("6", (6, 4)),
            ("now", (6, 9)),
            ("19700101T000400", (3, 4)),
            ("1970-01-01T00:08:00Z", (6, 8)),
            (f"{LOG}-3", (3, 2)),
        ],
    )
    def test_a_bookmark_is_the_time_of_its_change(self, text, expected):
        assert self.of(text) == expected

    @pytest.mark.parametrize(("text", "expected"), [("1", (0, 1)), ("4", (3, 4)), ("5", (3, 4))])
    def test_inside_a_change_it_is_before_it(self, text, expected):
        assert self.of(text) == expected

    def test_a_change_in_several_entries_is_one_and_others_of_its_time_are_not(self):
        made, seq = MemoryJournal(), 1
        for topic, time_us in (("t", 6), ("t", 7), ("t", 7), ("u", 7), ("t", 7), ("t", 8)):
            made.append([LogEntry("publish", topic, seq, time_us, None, [b"{}"] * 2)])
            seq += 2
        expected = {2: 2, 3: 2, 4: 2, 5: 2, 6: 6, 7: 6, 8: 8, 9: 8, 10: 10, 12: 12}
        for text, found in expected.items():
            assert parse_moment("as_of", str(text), made, seq - 1, 9).seq == found

    @pytest.mark.parametrize(
        ("text", "first_seq"), [("7", 1), ("1", 4), ("19700101T001000", 1), ("19700101T000100", 4)]
    )
    def test_what_is_not_covered_is_refused_with_what_is(self, text, first_seq):
        with pytest.raises(NotKept) as caught:
            self.of(text, first_seq)
        oldest, newest = caught.value.bounds["oldest"], caught.value.bounds["newest"]
        assert (oldest["bookmark"], newest["bookmark"]) == (str(first_seq - 1), "6")
        assert newest["time"] == "1970-01-01T00:09:00Z"

    def test_a_place_in_what_was_sent_that_is_still_to_come_is_no_moment_yet(self):
        assert self.of(f"6.{9 * MINUTE_US}") == (6, 9)
        with pytest.raises(NotReached, match="has not come to"):
            self.of(f"6.{9 * MINUTE_US + 1}")

    @pytest.mark.parametrize(("exact_seq", "oldest"), [(3, 3), (4, 6), (5, 6), (6, 6)])
    def test_of_a_checkpoint_that_ends_inside_a_change_the_oldest_is_after_it(
        self, exact_seq, oldest
    ):
        made, kept = journal(3), [KeptCheckpoint(3, exact_seq, 3 * MINUTE_US)]
        with pytest.raises(NotKept) as caught:
            parse_moment("as_of", "1", made, NEWEST, 9 * MINUTE_US, kept)
        said = caught.value.bounds["oldest"]["bookmark"]
        assert said == str(oldest)
        found = parse_moment("as_of", said, made, NEWEST, 9 * MINUTE_US, kept)
        assert found.seq == oldest >= exact_seq

    def test_the_oldest_that_is_kept_is_known(self):
        assert self.of("3", first_seq=4) == (3, 0)
