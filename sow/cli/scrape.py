"""Figures of `/metrics`, for commands that show or judge them."""

from collections.abc import Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from sow.client import Client
from sow.client.errors import OlderServer, not_sow
from sow.client.http import taken
from sow.core.media_types import PLAIN_TEXT
from sow.errors import NotEntitled

Samples = Mapping[str, Mapping[str, float]]
"""By name, and by the value of the only label, "" without one."""


async def scraped(client: Client) -> Samples | None:
    """The figures of a server, without those of single topics, which may be very many; None if the
    user may not see them."""
    try:
        text = await _exposition(client, {"topics": False})
    except OlderServer:
        text = await _exposition(client, {})
    except NotEntitled:
        return None
    try:
        return samples(text)
    except ValueError as error:
        raise not_sow(client.http.url, "other figures than those of /metrics") from error


async def _exposition(client: Client, requested: Mapping[str, object]) -> str:
    async with client.http.request("GET", "/metrics", requested, accept=PLAIN_TEXT) as answer:
        return (await taken(client.http.url, answer)).decode(errors="replace")


def samples(text: str) -> Samples:
    """The figures of an exposition, without those of single topics, which have more labels."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        sample: Any
        for sample in family.samples:
            label = next(iter(sample.labels.values()), "")
            found.setdefault(sample.name, {})[label] = sample.value
    return found
