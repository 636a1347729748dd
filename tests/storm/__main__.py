"""`python -m tests.storm [NAME …]`: storms at their full strength, as a table in Markdown."""

import asyncio
import sys
import tempfile

from sow.server.boot.http_server import raise_files_limit
from tests.storm.storms import STORMS, target, weather


async def main():
    files = raise_files_limit()
    print("| storm | outcome | memory | longest /healthz |\n| --- | --- | --- | --- |")
    for storm, (count, _) in STORMS.items():
        if sys.argv[1:] and storm.__name__ not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as directory:
            async with target(directory) as server:
                found = await weather(server, storm, min(count, files) if count < 50_000 else count)
        name = storm.__doc__.rstrip(".")
        grown, stall_ms = found.grown_bytes / 2**20, found.stall_s * 1000
        print(f"| {name} | {found.said} | {grown:.0f} MiB | {stall_ms:.0f} ms |", flush=True)


asyncio.run(main())
