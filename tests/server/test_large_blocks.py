"""Large blocks come from the system and go back to it, unless the operator has said otherwise."""

import subprocess
import sys

import pytest

from sow.server.large_blocks import END_BYTES, LARGE_BYTES, give_back_large_blocks

GROWN_MB = """
import sys
from pathlib import Path
from sow.server.large_blocks import give_back_large_blocks

def pages():
    return int(Path("/proc/self/statm").read_text().split()[1])

if sys.argv[1:]:
    assert give_back_large_blocks({})
del (large := [bytearray(16 * 2**20)])[:]  # from then on glibc counts none of 16 MB as large
before, kept = pages(), []
for _ in range(16):
    large.append(bytearray(b"x") * 2**22)
    kept.append(bytearray(200_000))
del large
print((pages() - before) * 4096 // 2**20)
"""
"""A process that fills 64 MB of large blocks, with smaller ones behind them that stay, and lets the
large ones go: how many MB it has grown by."""


def grown_mb(*arguments):
    run = [sys.executable, "-c", GROWN_MB, *arguments]
    return int(subprocess.run(run, check=True, capture_output=True, text=True).stdout)


def test_what_was_large_goes_back_though_others_stand_behind_it():
    by_itself, told = grown_mb(), grown_mb("told")
    assert told < 16 < 48 < by_itself


class Library:
    """One that has `mallopt`, and takes what it is told or not."""

    def __init__(self, takes=1):
        self.takes = takes
        self.told = []

    def option(self, *values):
        self.told.append(values)
        return self.takes


def test_the_library_is_told_from_which_size_on():
    library = Library()
    assert give_back_large_blocks({"HOME": "/"}, library.option)
    assert library.told == [(-3, LARGE_BYTES), (-1, END_BYTES)]


def test_a_library_may_not_take_it():
    assert not give_back_large_blocks({}, Library(takes=0).option)


@pytest.mark.parametrize(
    "environment",
    [
        {"MALLOC_MMAP_THRESHOLD_": "4194304"},
        {"GLIBC_TUNABLES": "glibc.malloc.arena_max=2:glibc.malloc.mmap_threshold=4194304"},
    ],
)
def test_what_the_operator_said_stands(environment):
    library = Library()
    assert not give_back_large_blocks(environment, library.option)
    assert library.told == []


def test_other_tunables_are_no_reason():
    library = Library()
    assert give_back_large_blocks({"GLIBC_TUNABLES": "glibc.malloc.arena_max=2"}, library.option)
