"""What of the settings of NATS loses entries that were answered, in sentences.

JetStream answers an append once a majority of the stream's replicas has written it. It does not
wait for their disks unless the configuration of the server says so: by itself it syncs every two
minutes, and machines that lose their power together lose what was answered. Only the monitoring
port of each server knows (`/varz`). The stream's own settings say how many replicas there are, and
whether it drops old entries by itself.

These are functions of what was answered to `sow.shared_log.adapters.nats`.
"""

from collections.abc import Collection, Mapping
from typing import Any

REPLICAS_MIN = 3
"""Of two, none may fail."""
KEEPS_ALL = {
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
    "max_consumers": -1,
}
"""Limits of a stream that drops nothing by itself, takes the largest entry and as many readers as
there are nodes."""
SETTINGS = {
    "retention": "limits",
    "storage": "file",
    "sealed": False,
    "no_ack": False,
    # A header of one message would remove all that came before it.
    "allow_rollup_hdrs": False,
}


def server_findings(server: str, varz: Mapping[str, Any]) -> list[str]:
    """What is unsafe in the settings of a server, as its monitoring port says."""
    jetstream = varz.get("jetstream") or {}
    config = jetstream.get("config")
    if not config:
        return [
            f"NATS at {server} runs without JetStream, so it keeps nothing: write "
            "`jetstream { store_dir: ... , sync_interval: always }` into its configuration"
        ]
    if config.get("sync_always") is True:
        return []
    return [
        f"NATS {varz.get('version', '?')} at {server} answers before its disk has an entry, which "
        "is lost if machines lose their power together: write `sync_interval: always` into the "
        "section jetstream of its configuration (NATS 2.10 or newer) and start it again"
    ]


def unread_finding(server: str, monitor: str, why: str) -> str:
    """A server runs, and its settings cannot be read."""
    return (
        f"the settings of NATS at {server} cannot be read at {monitor}/varz ({why}), and only "
        "there it says whether it waits for its disk: write `http: 8222` into its configuration, "
        "or into <Monitor> where its monitoring port is"
    )


def replicas_finding(replicas: int, servers: int) -> list[str]:
    """A stream that is to have fewer replicas than a machine may die for."""
    if servers < REPLICAS_MIN or replicas >= REPLICAS_MIN:
        return []
    return [
        f"<Replicas> is {replicas} over {servers} servers of NATS, so one machine that dies takes "
        f"entries with it that were answered: write {REPLICAS_MIN}, or leave it out"
    ]


def stream_findings(
    stream: str, config: Mapping[str, Any], subject: str, replicas: int
) -> list[str]:
    """What is unsafe in the settings of a stream that is there."""
    found = []
    if (has := config.get("num_replicas", 1)) < replicas:
        found.append(
            f"the stream {stream} has {has} of {replicas} replicas: "
            f"`nats stream edit {stream} --replicas {replicas}`"
        )
    if config.get("persist_mode", "default") not in ("", "default"):
        found.append(
            f"the stream {stream} has persist_mode {config['persist_mode']}, so it answers before "
            "its disk has an entry: make another one without"
        )
    also = config.get("subject_transform") or config.get("sources")
    if config.get("subjects") != [subject] or also:
        found.append(
            f"the stream {stream} takes {config.get('subjects')}{' and more' if also else ''} and "
            f"not {subject} alone: write another <Stream>, which is made if there is none"
        )
    for name, value in {**KEEPS_ALL, **SETTINGS}.items():
        if (has := config.get(name, value)) != value:
            found.append(
                f"the stream {stream} has {name} {has}, so it loses or refuses entries by itself: "
                f"set {name} to {value}, or write another <Stream>, which is made if there is none"
            )
    return found


def placement_findings(
    stream: str, cluster: Mapping[str, Any], known: Collection[str]
) -> list[str]:
    """Servers that hold a replica and whose settings were never read, by name."""
    replicas = [one["name"] for one in cluster.get("replicas") or ()]
    members = [name for name in (cluster.get("leader"), *replicas) if name]
    return [
        f"the stream {stream} has a replica on the server {name} of NATS, which is not among "
        "<Servers>, so its settings cannot be read: add its address"
        for name in members
        if name not in known
    ]
