"""`python -m tests.soak [SECONDS]`: a soak at its full strength, as a table in Markdown."""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from sow.server.boot.http_server import raise_files_limit
from tests.soak.soak import FULL, Soak, faults

ROUNDS_OF_A_LIFE = 10
LIVES_MIN = 3
"""However short a soak is, and however slow the machine, it is killed now and then."""


async def main(seconds):
    files, until_s = raise_files_limit(), time.monotonic() + seconds
    sizes = FULL._replace(idle=min(FULL.idle, files - 3_000))
    found = []
    print(
        "| life | rounds | memory after the first, the middle and the last | files | longest step |"
    )
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as directory:
        soak, life = Soak(Path(directory), sizes), 0
        while time.monotonic() < until_s:
            life += 1
            ends = soak.rounds + ROUNDS_OF_A_LIFE
            ends_s = min(until_s, time.monotonic() + seconds / LIVES_MIN)
            looks = await soak.live(
                lambda ends=ends, ends_s=ends_s: soak.rounds >= ends or time.monotonic() > ends_s
            )
            found += [f"life {life}, {fault}" for fault in faults(looks)]
            first, middle, last = looks[0], looks[len(looks) // 2], looks[-1]
            print(
                f"| {life} | {len(looks)} | {first.memory_bytes >> 20} MiB, "
                f"{middle.memory_bytes >> 20} MiB, {last.memory_bytes >> 20} MiB | "
                f"{first.files}, {last.files} | {last.longest_s * 1000:.0f} ms, {last.longest} |",
                flush=True,
            )
    sys.exit("; ".join(found) or None)


asyncio.run(main(float(sys.argv[1]) if sys.argv[1:] else 3600.0))
