"""Publishes a CSV file at a pace, and goes on where it stopped when it is started again.

How far it is, the server knows: each message says which `row` of the file it is, and the highest
row that is stored is where to go on. A publish returns when it is on the server's disk, so nothing
is left out, whenever this program or the server is killed; what was stored and not yet acknowledged
is sent once more, and makes the same record.
"""

import argparse
import csv
import math
import time

from sow.client.sync import Client
from sow.errors import SowError


def value(text: str) -> object:
    """A number where the text is one; NAN and INF are symbols, and no numbers to JSON."""
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def rows_stored(client: Client, topic: str) -> int:
    """How many rows of the file the server has: the highest one that a record says."""
    newest = client.query(topic, order_by="/row DESC", top_n=1, select=["/row"]).records
    return newest[0].get("row", 0) if newest else 0


def feed(client: Client, topic: str, path: str, rate: float) -> tuple[int, int]:
    """Publish what is missing, `rate` rows a second; how many rows were there, and are now."""
    begun = row = rows_stored(client, topic)
    with open(path, newline="", encoding="utf-8") as file:
        for row, fields in enumerate(csv.DictReader(file), 1):
            if row > begun:
                message = {name: value(text) for name, text in fields.items()}
                client.publish(topic, message | {"row": row})
                time.sleep(1 / rate)
    return begun, max(begun, row)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="a CSV file with a heading, such as examples/quotes.csv")
    parser.add_argument("--topic", default="quotes")
    parser.add_argument("--rate", type=float, default=2.0, help="rows a second")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="the server")
    given = parser.parse_args()
    try:
        with Client(given.url, name="csv feed") as client:
            begun, ended = feed(client, given.topic, given.file, given.rate)
    except (SowError, OSError) as error:
        raise SystemExit(f"csv feed: {error}") from None
    print(f"{begun} rows were there, {ended - begun} were published")
