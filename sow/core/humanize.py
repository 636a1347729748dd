"""Quantities as people read them: how many, how much and how long, in a word or two.

For sentences of the server and tables of the command line, so that both say `2.5 s`. Programs are
given numbers with their unit in the name.
"""

SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
SIZE_STEP = 1024
"""Bytes of a KiB, and so on up."""


def counted(count: int, what: str) -> str:
    """`1 record`, `2,000 records`."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def size(count: float) -> str:
    """`512 B`, `1.5 MiB`: two digits and a unit are all that anybody compares."""
    for unit in SIZE_UNITS:
        if count < SIZE_STEP or unit == SIZE_UNITS[-1]:
            return f"{count:,.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= SIZE_STEP
    raise AssertionError("the last unit takes whatever is left")


def duration(seconds: float) -> str:
    """`0.4 ms`, `35 ms`, `2.5 s`, `3 min`, `5 h`, `12 d`."""
    if seconds < 0.01:
        return f"{seconds * 1000:.2g} ms" if seconds else "0 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit_s, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{seconds:.1f} s"
