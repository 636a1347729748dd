"""Large blocks of memory: the C library is to take each from the system, and give it back when it
is free.

By itself it does so until a large block is freed for the first time. Blocks of up to that size,
and 32 MiB at most, then stand among all others, and what a table leaves behind as it grows is a
hole that the system does not get back: some 40 bytes a record where there are a million. Columns
that grow are also copied there, instead of being given more pages where they stand.

Only glibc can be told; with another library nothing is done. What the operator says in its own
environment (`MALLOC_MMAP_THRESHOLD_`, `GLIBC_TUNABLES`) stands.
"""

import ctypes
from collections.abc import Callable, Mapping

Option = Callable[[int, int], int]
"""`mallopt`: a parameter and its value; 0 where it is not taken."""

LARGE_BYTES = 1024**2
"""Blocks of so many bytes are large. Frames and groups of them, which come and go all the time, are
smaller, and stay among all others."""
END_BYTES = 4 * LARGE_BYTES
"""What is free at the end of all others goes back from so many bytes on. As glibc has it, an eighth
of a MB, the memory of frames would go and come with each turn, and be cleared by the system."""
SAID_ALONE = "MALLOC_MMAP_THRESHOLD_"
SAID_AMONG = "GLIBC_TUNABLES"
"""Where an operator may have said it: by itself, or among other things."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""What glibc calls the two (mallopt(3))."""


def give_back_large_blocks(environment: Mapping[str, str], option: Option | None = None) -> bool:
    """Have the library of this process do so from now on; returns whether it does because of this.

    `option` is `mallopt`: that of the library, if it has one.
    """
    if SAID_ALONE in environment or "mmap_threshold" in environment.get(SAID_AMONG, ""):
        return False
    option = option or getattr(ctypes.pythonapi, "mallopt", None)
    return option is not None and all(
        (option(_MMAP_THRESHOLD, LARGE_BYTES), option(_TRIM_THRESHOLD, END_BYTES))
    )
