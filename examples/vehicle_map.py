"""Buses on a map in the terminal, moved once a second however often they report; Ctrl-C ends it.

The buses are simulated here and drive in circles, each reporting twenty times a second to the topic
`vehicles`. The map follows `vehicles-C`, the conflated topic: a bus is updated at most once a
second, always with its latest position. To play recorded positions instead, start this with
--watch-only:

    sow replay positions.parquet --topic vehicles --speed 600x
"""

import argparse
import asyncio
import contextlib
import math
from itertools import count

from sow.client import Client

BUSES = 12
REPORTS_S = 0.05
CENTRE = (30.27, -97.74)
RADIUS = 0.05
COLUMNS, LINES = 60, 20
CLEAR = "\x1b[H\x1b[2J"


def position(bus: int, step: int) -> dict:
    """Where a bus is at a step: each has a circle and a speed of its own."""
    angle = bus + step * 0.01 * (1 + bus % 3)
    radius = RADIUS * (bus + 1) / BUSES
    return {
        "vehicle": f"bus-{bus}",
        "latitude": round(CENTRE[0] + radius * math.sin(angle), 5),
        "longitude": round(CENTRE[1] + radius * math.cos(angle), 5),
    }


def drawn(vehicles: list[dict]) -> str:
    """A map of characters that just holds all of them; a letter stands for a bus."""
    south, west = (min(one[axis] for one in vehicles) for axis in ("latitude", "longitude"))
    north, east = (max(one[axis] for one in vehicles) for axis in ("latitude", "longitude"))
    lines = [[" "] * COLUMNS for _ in range(LINES)]
    for number, one in enumerate(sorted(vehicles, key=lambda one: str(one["vehicle"]))):
        down = (north - one["latitude"]) / ((north - south) or 1)
        right = (one["longitude"] - west) / ((east - west) or 1)
        lines[round(down * (LINES - 1))][round(right * (COLUMNS - 1))] = chr(97 + number % 26)
    edge = "+" + "-" * COLUMNS + "+"
    return "\n".join([edge, *(f"|{''.join(line)}|" for line in lines), edge])


async def drive(client: Client) -> None:
    """Report where the buses are, again and again."""
    for step in count():
        await client.publish("vehicles", [position(bus, step) for bus in range(BUSES)])
        await asyncio.sleep(REPORTS_S)


async def watch(client: Client, frames: int | None) -> None:
    """Draw the map each time that some of them have moved."""
    drawn_frames = updates = 0
    async with client.sow_and_subscribe("vehicles-C") as messages:
        vehicles: dict[str | None, dict] = {}
        while frames is None or drawn_frames < frames:
            for message in await messages.batch():
                if message.c in ("sow", "p"):
                    vehicles[message.k] = message.document()
                    updates += 1
                elif message.c == "oof":
                    vehicles.pop(message.k, None)
            if vehicles:
                drawn_frames += 1
                print(f"{CLEAR}{drawn([*vehicles.values()])}")
                print(f"{len(vehicles)} vehicles, {updates} positions received")


async def main(url: str, frames: int | None, drives: bool) -> None:
    """Drive and watch, each with its own connection."""
    async with Client(url, name="map") as client:
        driving = asyncio.create_task(drive(client)) if drives else None
        try:
            await watch(client, frames)
        finally:
            if driving is not None:
                driving.cancel()
                await asyncio.gather(driving, return_exceptions=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="the server")
    parser.add_argument("--frames", type=int, help="end after so many maps")
    parser.add_argument("--watch-only", action="store_true", help="drive no buses of its own")
    given = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(given.url, given.frames, not given.watch_only))
