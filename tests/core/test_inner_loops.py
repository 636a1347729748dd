import gc
import os
import subprocess
import sys
import tracemalloc
from array import array
from itertools import pairwise
from random import Random

import numpy as np
import pytest

from sow.core.inner_loops import IN_PYTHON, INNER_LOOPS, NO_PLACE, in_c, wanted_in
from tests.core.keys_in_python import INDEXES, KEY_INDEX, PARTS, KeysInPython

LANGUAGES = [loops for loops in (IN_PYTHON, in_c()) if loops is not None]
"""Without a compiler Python's are compared with themselves: the start line says so."""
CALLS = 100_000
REFUSALS = TypeError, AttributeError, BufferError, IndexError, OverflowError, ValueError


@pytest.fixture(params=LANGUAGES, ids=lambda loops: loops.language)
def loops(request):
    return request.param


def column(numbers):
    return array("i", numbers)


# Both do the same.


def swapped(loops, draw):
    held = [draw.choice([None, b"x%d" % at]) for at in range(draw.randrange(1, 50))]
    slots = [draw.randrange(len(held)) for _ in range(draw.randrange(80))]
    values = [b"new %d" % at for at in range(len(slots))]
    return loops.swap(held, slots, draw.choice([list, tuple])(values)), held


def stamped(loops, draw):
    block = np.zeros((draw.randrange(2, 5), draw.randrange(1, 50)), np.int64)
    slots = [draw.randrange(block.shape[1]) for _ in range(draw.randrange(80))]
    seqs, ts_us = range(7, 7 + len(slots)), [draw.randrange(-(2**63), 2**63) for _ in slots]
    loops.stamp(block, slots, draw.choice([seqs, tuple(seqs)]), ts_us)
    return block.tolist()


def stood(loops, draw):
    drawn = [None, "", "a", "b", 1, True, 1.0, 2.5, ["a"], ("a", 1), [["b"]]]
    codes = {None: NO_PLACE, "a": 0, 1: 1, ("a", 1): 2}
    standing = column(draw.randrange(NO_PLACE, 5) for _ in range(draw.randrange(1, 40)))
    slots = [draw.randrange(len(standing)) for _ in range(draw.randrange(60))]
    values, moved, told = [draw.choice(drawn) for _ in slots], column([7]), []

    def code_of(value):
        told.append(value)
        if isinstance(value, str | float):
            codes[value] = len(codes)  # the next of it is found
        return len(told) % 9 - 1

    loops.stand(codes, iter(values), slots, standing, moved, code_of)
    return codes, standing, moved, told


def relinked(loops, draw):
    size, count = draw.randrange(1, 60), draw.randrange(1, 6)
    filed, following, previous = (column([NO_PLACE] * size) for _ in range(3))
    heads, sizes, shown = column([NO_PLACE] * count), column([0] * count), []
    for _ in range(6):
        standing = column(draw.randrange(NO_PLACE, count) for _ in range(size))
        slots = column(draw.randrange(size) for _ in range(draw.randrange(2 * size)))
        loops.relink(slots, standing, filed, heads, sizes, following, previous)
        shown.append([list(one) for one in (filed, heads, sizes, following, previous)])
    return shown


def framed(loops, draw):
    data = b""
    for _ in range(draw.randrange(8)):
        size, masked = draw.choice([0, 1, 7, 8, 9, 125, 126, 300, 65_535]), draw.random() < 0.95
        head = bytes(
            [draw.choice([0x82] * 9 + [0x81] * 9 + [0x02, 0xC2]), min(size, 126) | 0x80 * masked]
        )
        head += size.to_bytes(2, "big") * (size > 125)
        payload = draw.choice([draw.randbytes(size), bytes(size)])
        mask = draw.choice([draw.randbytes(4), bytes(4)])
        data += head + mask * masked + payload
    data += draw.choice([b"", b"\x82\xff" + bytes(12), b"\x82\x85", b"\x82\xfe\0", b"\x82"])
    cut = draw.choice([len(data), draw.randrange(len(data) + 1)])
    return loops.frames(data[:cut], draw.choice([100, 300, 1 << 20]), draw.choice([1, 3, 100]))


@pytest.mark.parametrize("work", [swapped, stamped, stood, relinked, framed])
@pytest.mark.parametrize("seed", range(100))
def test_both_languages_do_the_same(work, seed):
    first, *others = (work(loops, Random(seed)) for loops in LANGUAGES)
    assert all(other == first for other in others)


def test_the_chains_hold_each_slot_once(loops):
    filed, heads, sizes, following, previous = relinked(loops, Random(1))[-1]
    for code, size in enumerate(sizes):
        chain, slot = [], heads[code]
        while slot != NO_PLACE:
            chain.append(slot)
            slot = following[slot]
        assert len(chain) == size
        assert all(filed[slot] == code for slot in chain)
        assert [previous[slot] for slot in chain] == [NO_PLACE, *chain][:size]


def test_frames_are_read_up_to_the_first_that_is_not_short_or_not_whole(loops):
    def frame(payload, first=0x82, mask=b"\1\2\3\4"):
        hidden = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
        return bytes([first, 0x80 | len(payload)]) + mask + hidden

    one, other = frame(b"one"), frame(b"and the other")
    both = [b"one", b"and the other"]
    assert loops.frames(one + other, 100, 9) == (both, len(one + other), False)
    assert loops.frames(one + other, 100, 1) == ([b"one"], len(one), False)
    assert loops.frames(one + other, 12, 9) == ([b"one"], len(one), False)
    for cut in range(1, len(other)):
        assert loops.frames(one + other[:cut], 100, 9) == ([b"one"], len(one), True)
    text, other_text = frame(b"text", 0x81), frame("é".encode(), 0x81)
    assert loops.frames(text + other_text, 100, 9) == ([b"text"], len(text), False)
    for first in (0x02, 0x80, 0x88, 0x89, 0xC2):
        assert loops.frames(one + frame(b"x", first), 100, 9) == ([b"one"], len(one), False)
    for rest in (b"\x82\x01x", b"\x82\xff" + bytes(20)):
        assert loops.frames(one + rest, 100, 9) == ([b"one"], len(one), False)
    assert loops.frames(b"", 100, 9) == ([], 0, False)


# What is wrong is refused, and what was done before it is noted.


def test_what_does_not_fit_together_is_an_error(loops):
    with pytest.raises(ValueError):  # noqa: PT011
        loops.swap([1, 2], [0, 1], [3])
    for seqs, ts_us in (([1, 2, 3], [1, 2]), ([1, 2], [1, 2, 3])):
        with pytest.raises(ValueError):  # noqa: PT011
            loops.stamp(np.zeros((2, 4), np.int64), [0, 1], seqs, ts_us)
    for values in ([1], [1, 1, 1]):
        with pytest.raises(ValueError):  # noqa: PT011
            loops.stand({1: 1}, values, [0, 1], column([0, 0]), column([]), int)
    with pytest.raises(IndexError):
        loops.swap([1, 2], [2], [3])
    with pytest.raises(IndexError):
        loops.stamp(np.zeros((2, 4), np.int64), [4], [1], [1])
    with pytest.raises(IndexError):
        loops.stand({1: 1}, [1], [5], column([0]), column([]), int)
    with pytest.raises(IndexError):
        loops.relink(*map(column, ([9], [0], [0], [0], [0], [0], [0])))
    with pytest.raises(IndexError):
        loops.relink(*map(column, ([0], [4], [NO_PLACE], [NO_PLACE], [0], [NO_PLACE], [NO_PLACE])))


def test_what_stood_before_an_error_is_noted(loops):
    standing, moved = column([0, 0, 0]), column([])

    def fails(value):
        raise MemoryError

    with pytest.raises(MemoryError):
        loops.stand({"a": 4}, ["a", "b", "a"], [2, 1, 0], standing, moved, fails)
    assert (list(standing), list(moved)) == ([0, 0, 4], [2])


def test_a_code_of_another_kind_is_refused(loops):
    for code in (2**31, "x"):
        with pytest.raises((OverflowError, TypeError)):
            loops.stand({}, ["a"], [0], column([0]), column([]), lambda _, code=code: code)


def test_what_is_of_another_kind_is_refused(loops):
    block = np.zeros((2, 4), np.int64)
    stamps = [(block, ["0"], [1], [1]), (block, [0], ["x"], [1]), (block, 5, [1, 2], [1, 2]), ()]
    swaps = [((), [0], [1]), ([1], ["0"], [1]), ([1], 5, [1]), ()]
    stands = [({"a": 1}, ["a"], [0], column([0]), [], 5)[:5], ({}, 5, [0], column([0]), [], int)]
    relinks = [[column([0])] * 3, [b"0000"] * 7]
    frames = [(b"\x82\x80\0\0\0\0", "1", 1), (b"\x82", 1, None), ()]
    if loops.language == "C":
        # What Python would take: C reads memory, so that it takes what it was written for.
        swaps += [([1], [-1], [1]), ([1], [True], [1])]
        stamps += [(block, [-1], [1], [1]), (block, [0], [1.0], [1]), (block, [0], [2**63], [1])]
        stamps += [(block[0], [0], [1], [1]), (block[:1], [0], [1], [1])]
        stamps += [(block.astype(np.int32), [0], [1], [1]), (block[:, ::2], [0], [1], [1])]
        stamps += [([[0], [0]], [0], [1], [1])]
        stands += [([], ["a"], [0], column([0]), column([]), int)]
        stands += [({"a": 1}, ["a"], [0], column([0]), 5, int)]
        frames += [("x", 1, 1), (bytearray(b"x"), 1, 1)]
        relinks += [[array("q", [0])] * 7, [[0]] * 7]
        relinks += [list(map(column, ([0], [0], [0, 0], [0], [0], [0], [0])))]
    named = (loops.swap, swaps), (loops.stamp, stamps), (loops.stand, stands)
    for loop, tried in (*named, (loops.relink, relinks), (loops.frames, frames)):
        for arguments in tried:
            with pytest.raises(REFUSALS):
                loop(*arguments)
    assert not block.any()


# Nothing is kept.


def test_no_reference_is_kept_or_lost(loops):
    value, held, slots, values = object(), [None] * 3, [1, 2], []
    values += [value, value]
    codes, standing, moved = {"a": 1000}, column([0, 0, 0]), column([])
    named, block = [["b"], "a"], np.zeros((2, 3), np.int64)
    watched = (value, held, slots, values, codes, standing, moved, named[0], block, codes["a"])

    def many():
        for _ in range(CALLS):
            loops.swap(held, slots, values)
            loops.stamp(block, slots, slots, slots)
            loops.stand(codes, named, slots, standing, moved, lambda _: 2000)
            del moved[:]
        for wrong in range(1000):
            with pytest.raises(IndexError):
                loops.swap(held, [wrong + 3], [value])
            with pytest.raises(IndexError):
                loops.stamp(block, [wrong + 3], [1], [1])
            with pytest.raises(IndexError):
                loops.stand(codes, named, [0, wrong + 3], standing, moved, len)

    loops.swap(held, slots, values)
    loops.stamp(block, slots, slots, slots)
    loops.stand(codes, named, slots, standing, moved, lambda _: 2000)
    before = list(map(sys.getrefcount, watched))
    tracemalloc.start()
    try:
        many()
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert list(map(sys.getrefcount, watched)) == before
    assert taken < CALLS  # less than a byte a call
    standing.append(0)  # no view of it is left


# The index of keys.


class Name(str):
    """A text that claims to be equal to nothing."""

    __slots__ = ()
    __hash__ = None

    def __eq__(self, _other):
        raise AssertionError("no Python is called")


def keys_drawn(draw):
    """Keys of all kinds: empty, long, of one, two and four bytes a character, half a pair."""
    makers = ["{}", "\xe9{}", "\u20ac{}", "\U0001f600{}", "\ud800{}", "{}\0", "x" * 5_000 + "{}"]
    return ["", *(draw.choice(makers).format(at) for at in range(draw.choice([5, 60, 400])))]


MASKS = [2**32 - 1, 0, 1, 7, 0xFE000000, 0xFE000003]
"""Which bits of a hash count: all, none, so that all keys collide, and few."""


def indexed(make, draw, mask):
    """A history of keys in a list of names, as a table has one."""
    names, free, held, told = [], [], {}, []
    pool, index = keys_drawn(draw), make(names, mask)
    for _ in range(40):
        some = [draw.choice(pool) for _ in range(draw.randrange(100))]
        match draw.choice(["add", "add", "pop", "find"]):
            case "add":
                for key in some:
                    if key not in held and free and draw.random() < 0.7:
                        held[key] = free.pop()
                        names[held[key]] = key
                    elif key not in held:
                        held[key] = len(names)
                        names.append(key)
                told.append(index.add_all(some, [held[key] for key in some]))
            case "pop":
                for key in some:
                    told.append(index.pop(key))
                    if key in held:
                        names[held[key]] = None
                        free.append(held.pop(key))
            case "find":
                told.append([index.find(key) for key in some])
                told.append(index.find_all(tuple(some)))
                assert told[-1] == [held.get(key) for key in some]
        told.append(len(index))
    found = [slot for part in range(PARTS) for slot in index.slots_of(part)]
    return told, sorted(found), [index.pop(key) for key in pool], len(index)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("seed", range(20))
def test_an_index_of_keys_is_a_dictionary(mask, seed):
    first, *others = (indexed(make, Random(seed), mask) for make in INDEXES)
    assert all(other == first for other in others)


@pytest.fixture(params=INDEXES, ids=lambda make: make.__name__)
def make_index(request):
    return request.param


def test_a_key_is_what_its_text_is(make_index):
    names = ["a", "b"]
    index = make_index(names)
    assert index.add_all(["a", "b", "a"], [0, 1, 0]) == [0, 1, 0]
    assert (index.find("a"), index.find("c"), index.pop("b"), index.find("b")) == (0, -1, 1, -1)
    assert index.slots_of(PARTS) is None
    assert (index.find_all([]), index.add_all([], []), len(index)) == ([], [], 1)
    if make_index is not KeysInPython:
        name = Name("a")
        assert (index.find(name), index.find_all([name]), index.pop(name)) == (0, [0], 0)
        assert (index.find(5), index.pop(None), index.slots_of(-1)) == (-1, -1, None)


def test_what_is_no_key_or_slot_is_refused_and_what_is_there_stays(make_index):
    names = ["a", "b", None, "d"]
    index = make_index(names)
    index.add_all(["a"], [0])
    refused = [
        (["a", 5], [0, 1], TypeError), (["b"], ["1"], TypeError), (["b"], [True], TypeError),
        (["b"], [4], IndexError), (["b"], [0], ValueError), (["c"], [2], ValueError),
        (["b"], [-2], (IndexError, TypeError)), (["b", "d"], [1], ValueError), (7, [1], TypeError),
    ]  # fmt: skip
    for keys, slots, error in refused:
        with pytest.raises(error):
            index.add_all(keys, slots)
    with pytest.raises(TypeError):
        index.find_all(["a", b"a"])
    assert index.find_all(["a", "c", "d"]) == [0, None, None]
    if make_index is not KeysInPython:
        for wrong in ((), (("a",),), ([], "x"), ([], 1, 2)):
            with pytest.raises((TypeError, OverflowError)):
                make_index(*wrong)
        with pytest.raises(TypeError):
            make_index(names=[])
        with pytest.raises(OverflowError):
            index.add_all(["d"], [2**70])


def test_a_name_that_is_gone_or_beyond_the_list_is_not_found(make_index):
    names = [str(at) for at in range(100)]
    index = make_index(names)
    index.add_all(names, range(100))
    if make_index is not KeysInPython:
        names[7] = None
        names[8] = 8
        del names[50:]
        found = index.find_all([str(at) for at in range(100)])
        assert found == [None if at in (7, 8) or at >= 50 else at for at in range(100)]


def test_a_part_grows_and_shrinks_by_itself():
    names, sizes = [f"order-{at}" for at in range(60_000)], []
    index = KEY_INDEX(names)
    for at, name in enumerate(names):
        index.add_all([name], [at])
        sizes.append(sys.getsizeof(index))
    if KEY_INDEX is not KeysInPython:
        # A part has some 470 keys then; a fourth more of one part is what any step adds.
        assert max(after - before for before, after in pairwise(sizes)) < 8 * 300
        assert 8 * len(names) < sizes[-1] < 16 * len(names)
    for at, name in enumerate(names[1:], 1):
        assert index.pop(name) == at
        names[at] = None
    assert (len(index), index.find(names[0])) == (1, 0)
    assert sys.getsizeof(index) < 16 * 8 * 3 * PARTS


def test_an_index_keeps_its_names_and_nothing_else():
    names = [f"key {at}" for at in range(1_000)]
    strange, slots = ["none", "x" * 500, names[5]], list(range(1_000))
    watched = names, slots, names[5], strange[0], strange

    def many():
        index = KEY_INDEX(names)
        index.add_all(names, slots)
        for _ in range(100):
            index.add_all(names, slots)
            index.find_all(names)
            index.find_all(strange)
            assert index.pop(names[5]) == 5
            index.add_all([names[5]], [5])
            assert [index.find(key) for key in strange] == [-1, -1, 5]
            index.slots_of(3)
            for wrong in (["a", 5], [1, 2]), (names[:2], [0]), (strange, slots[:3]), (5, 5):
                with pytest.raises((TypeError, ValueError)):
                    index.add_all(*wrong)

    many()
    before = list(map(sys.getrefcount, watched))
    tracemalloc.start()
    try:
        many()
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert list(map(sys.getrefcount, watched)) == before
    assert taken < 10_000  # of 300,000 keys


# Which of them is used.


def test_the_environment_chooses_python():
    assert wanted_in({"SOW_PURE": "1"}) is IN_PYTHON
    assert wanted_in({"SOW_PURE": "0"}) == wanted_in({}) == (in_c() or IN_PYTHON)


@pytest.mark.parametrize("there", ["None", "types.SimpleNamespace(INTERFACE=0)"])
def test_what_is_not_there_or_of_another_source_is_not_used(there):
    code = (
        f"import sys, types; sys.modules['sow.core._inner_loops'] = {there}; "
        "from sow.core.inner_loops import INNER_LOOPS; print(INNER_LOOPS.language)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "Python\n"


def test_these_tests_run_with_what_was_chosen():
    pure = os.environ.get("SOW_PURE") == "1" or in_c() is None
    assert INNER_LOOPS.language == ("Python" if pure else "C")


def test_a_list_that_shrinks_while_values_are_read_is_an_error_and_nothing_else(loops):
    held = [b"x"] * 10_000

    def values():
        held.clear()
        yield from [b"y"] * 1_000

    with pytest.raises((RuntimeError, IndexError)):
        loops.swap(held, range(9_000, 10_000), values())
    assert held == []
