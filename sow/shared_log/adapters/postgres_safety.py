"""What of the settings of PostgreSQL loses entries that were answered, in sentences.

A commit waits for the disk of the primary and, if the server says so, for a quorum of its standbys.
Both can be switched off, for the server, a role, a database or a connection; what counts is what
holds for the connection that appends. A standby that a client may fail over to has to be one of
those that commits wait for.

These are functions of what was answered to `sow.shared_log.adapters.postgres`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

ON = {"fsync": "on", "full_page_writes": "on"}
WAITS = ("on", "remote_apply")
STANDBYS = "synchronous_standby_names"
CHECKED = (*ON, "synchronous_commit", STANDBYS)
WHY = {
    "fsync": "commits do not wait for the disk",
    "full_page_writes": "a page that was half written when the power failed is lost",
}
MAY_LEAD = ("startup", "catchup", "streaming")
"""States of a standby; the other one is that of a backup."""


def hosts(dsn: str) -> list[str]:
    """The servers that an address names."""
    parts = urlsplit(dsn)
    places = parts.netloc.rpartition("@")[2]
    found = [_host(place) for place in places.split(",") if place]
    return found or ",".join(parse_qs(parts.query).get("host", ["localhost"])).split(",")


def _host(place: str) -> str:
    if place.startswith("["):
        return place[1:].partition("]")[0]
    return place.partition(":")[0]


def setting_findings(where: str, settings: Mapping[str, str], n_hosts: int) -> list[str]:
    """What is unsafe in the settings that hold for a connection."""
    found = [
        f"PostgreSQL at {where} has {name} {settings[name]}, so {WHY[name]}: write `{name} = on` "
        "into postgresql.conf"
        for name, value in ON.items()
        if settings[name] != value
    ]
    if settings["synchronous_commit"] not in WAITS:
        found.append(
            f"PostgreSQL at {where} has synchronous_commit {settings['synchronous_commit']}, so it "
            "answers before an entry is safe: write `synchronous_commit = on` where it is set, "
            "in postgresql.conf, for the role, the database or in <Dsn>"
        )
    if n_hosts > 1 and not settings[STANDBYS].strip():
        found.append(
            f"<Dsn> names {n_hosts} servers and PostgreSQL at {where} has no {STANDBYS}, so all "
            "standbys are asynchronous and a fail-over loses entries that were answered: write "
            f"such as `{STANDBYS} = 'ANY 1 (a, b)'` into postgresql.conf"
        )
    return found


def standby_findings(
    where: str, standbys: Sequence[Mapping[str, Any]], addresses: Collection[str]
) -> list[str]:
    """Asynchronous standbys at the addresses that a client may fail over to."""
    found = []
    for one in standbys:
        name = one["application_name"]
        if one["sync_state"] is None:
            return [
                f"the standbys of PostgreSQL at {where} do not say whether they are "
                "synchronous: `grant pg_read_all_stats to` the user of <Dsn>"
            ]
        is_candidate = one["address"] in addresses and one["state"] in MAY_LEAD
        if one["sync_state"] == "async" and is_candidate:
            found.append(
                f"<Dsn> names the asynchronous standby {name} of PostgreSQL at {where}, and a "
                "fail-over to it loses entries that were answered: put it into "
                f"{STANDBYS}, or take it out of <Dsn>"
            )
    return found


def table_findings(table: str, persistence: Mapping[str, str]) -> list[str]:
    """Tables that do not survive a crash of the server."""
    return [
        f"the table {name} is unlogged, so a crash of PostgreSQL empties it: "
        f"`alter table {name} set logged`"
        for name, kind in persistence.items()
        if kind != "p" and name.startswith(table)
    ]
