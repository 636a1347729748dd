"""The rules of `<Log>`: what each engine needs, what belongs to another one, and which settings
are unsafe as far as the file says so.

The settings of the engine itself are read by its adapter, when the server starts.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast
from urllib.parse import parse_qs, unquote, urlsplit

from sow.config.binder import Section
from sow.config.diagnostics import Diagnostics
from sow.core.addresses import parse_authority

REPLICAS_MIN = 3
"""Of two, none may fail."""
ADDRESSES_MAX, ADDRESS_CHARS_MAX = 64, 4096
"""No engine has so many servers, and no address is so long."""
WITHOUT_USER = ("", "kafka", "s3", "gs")
"""Schemes of addresses without a user in them."""
WITH_PATH = ("http", "https", "ws", "wss")
"""And of those that go on behind the host."""
NO_PLACE = "has no host, or a port that is none from 1 to 65535"
ESCAPES = "in a password %40 stands for @, %3A for :, %2F for / and %23 for #"
BUCKET_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
"""As S3 and Google have had them."""


class EngineElements(NamedTuple):
    """What of `<Log>` is for one engine: where it is, by which schemes, and what else it takes."""

    place: str
    schemes: tuple[str, ...]
    example: str
    more: tuple[str, ...] = ()


ENGINES = {
    "nats": EngineElements(
        "Servers",
        ("nats", "tls", "ws", "wss"),
        "nats://10.0.0.1:4222",
        ("Stream", "Replicas", "Monitor"),
    ),
    "postgres": EngineElements(
        "Dsn", ("postgres", "postgresql"), "postgres://user:password@host:5432/database"
    ),
    "kafka": EngineElements("Servers", ("", "kafka"), "10.0.0.1:9092", ("Topic",)),
    "s3": EngineElements("Url", ("s3", "gs"), "s3://bucket/name"),
}


def check_shared_log(root: Section, findings: Diagnostics) -> None:
    """A node of a shared log has a name and a place of its engine, and logs every topic."""
    shared = root.values.get("shared_log")
    if not isinstance(shared, Section):
        return
    engine = shared.text("engine")
    if engine not in ENGINES:
        _local(shared, findings)
        return
    _needed(shared, engine, findings)
    _of_others(shared, engine, findings)
    _addresses(shared, engine, findings)
    if engine == "nats":
        _copies(shared, findings)
    for topic in root.sections("topics"):
        if topic.text("durability") == "transient":
            message = "has no effect: a shared log has every topic, so that all nodes serve it"
            findings.warning(*topic.where("Durability"), message, "remove it")
            topic.values["durability"] = "persistent"


def _local(shared: Section, findings: Diagnostics) -> None:
    """Who names a place means a log that is shared."""
    places = {one.place for one in ENGINES.values()} & set(shared.lines)
    if "Engine" not in shared.lines and places:
        message = f"is missing, so <{min(places)}> has no effect and the log is on this machine"
        instead = f"add <Engine>, one of {', '.join(ENGINES)}, or local"
        findings.warning(*shared.where("Engine"), message, instead)


def _needed(shared: Section, engine: str, findings: Diagnostics) -> None:
    for element in (ENGINES[engine].place, "Node"):
        if not shared.values.get(element.lower()) and element not in shared.lines:
            message = f"is missing: the engine {engine} needs it"
            findings.error(*shared.where(element), message, f"add <{element}> to <Log>")


def _of_others(shared: Section, engine: str, findings: Diagnostics) -> None:
    for element in shared.lines:
        owners = [name for name, of in ENGINES.items() if element in (of.place, *of.more)]
        if owners and engine not in owners:
            belongs = f"belongs to the engine {' or '.join(owners)}"
            message = f"{belongs} and has no effect with {engine}"
            findings.warning(*shared.where(element), message, "remove it")


def _addresses(shared: Section, engine: str, findings: Diagnostics) -> None:
    place, schemes, example, _ = ENGINES[engine]
    _schemes(shared, place, schemes, f"write it as {example}", findings)
    _schemes(shared, "Monitor", ("http", "https"), "write it as http://10.0.0.1:8222", findings)
    _schemes(shared, "Advertise", ("http", "https"), "write it as http://10.0.0.1:8080", findings)
    if "@" in shared.text("advertise"):
        message = "has a user in it, and everybody gets to see this address"
        findings.error(*shared.where("Advertise"), message, "write it as http://10.0.0.1:8080")


def _schemes(
    shared: Section, element: str, schemes: Sequence[str], instead: str, findings: Diagnostics
) -> None:
    given = _each(shared, element)
    if len(set(given)) < len(given):
        message = "has an address twice: one machine that dies is both"
        findings.error(*shared.where(element), message, "write each once")
    if len(given) > ADDRESSES_MAX:
        message = f"has {len(given):,} addresses, more than {ADDRESSES_MAX}"
        findings.error(*shared.where(element), message, instead)
        return
    for address in given:
        scheme = address.partition("://")[0] if "://" in address else ""
        # What stands there is not shown: it may be a password.
        if scheme not in schemes or address.endswith("://"):
            called = f"an address of {scheme}" if scheme else "an address without its scheme"
            findings.error(*shared.where(element), f"{called} is none that it takes", instead)
        elif mistake := _mistake(address, scheme):
            findings.error(*shared.where(element), f"an address {mistake}", instead)


def _mistake(address: str, scheme: str) -> str:
    """What is wrong with an address; "" for nothing."""
    if len(address) > ADDRESS_CHARS_MAX:
        return f"has {len(address):,} characters, more than {ADDRESS_CHARS_MAX:,}"
    if not address.isprintable() or " " in address:
        return "has a blank in it, or what cannot be printed"
    try:
        parts = urlsplit(address if scheme else f"//{address}")
        options = parse_qs(parts.query, strict_parsing=True) if parts.query else {}
    except ValueError:
        return "has brackets or options that are none"
    user, at, places = parts.netloc.rpartition("@")
    if "#" in address or "@" in user or (at and scheme in WITHOUT_USER):
        return f"has an @ or a # where it takes none: {ESCAPES}"
    if scheme in ("s3", "gs"):
        return _mistake_in_store(places, options)
    if scheme in ("postgres", "postgresql"):
        return _mistake_in_dsn(places, options)
    if scheme not in WITH_PATH and (parts.path.strip("/") or parts.query):
        return "goes on behind its port"
    return "" if _is_place(places) else NO_PLACE


def _mistake_in_dsn(places: str, options: Mapping[str, list[str]]) -> str:
    """Of PostgreSQL: hosts and ports may also be options, and a host the directory of a socket."""
    hosts = (places or options.get("host", [""])[-1]).split(",")
    ports = [""] if places else options.get("port", [""])[-1].split(",")
    each = [unquote(one) if places else one for one in hosts]
    are_hosts = each == [""] or all(one.startswith("/") or _is_place(one) for one in each)
    are_ports = ports == [""] or all(_is_place(f"a:{one}") for one in ports)
    return "" if are_hosts and are_ports and len(ports) in (1, len(hosts)) else NO_PLACE


def _mistake_in_store(bucket: str, options: Mapping[str, list[str]]) -> str:
    if not BUCKET_NAME.fullmatch(bucket):
        return "has no bucket, or more than its name in its place"
    for endpoint in (one[-1] for name, one in options.items() if "endpoint" in name.lower()):
        scheme = endpoint.partition("://")[0]
        if scheme not in ("http", "https") or _mistake(endpoint, scheme):
            return "has an endpoint that is none such as http://host:9000"
    return ""


def _is_place(text: str) -> bool:
    """A host, and a port if there is one."""
    found = parse_authority(text)
    return found is not None and found.port != 0 and not text.endswith(":")


def _each(shared: Section, element: str) -> tuple[str, ...]:
    """The addresses in an element."""
    value = shared.values.get({"Monitor": "monitors"}.get(element, element.lower()), ())
    return (value,) if isinstance(value, str) else cast("tuple[str, ...]", value)


def _copies(shared: Section, findings: Diagnostics) -> None:
    """Copies of the stream of NATS, and where the settings of each server are read."""
    servers, monitors = len(_each(shared, "Servers")), len(_each(shared, "Monitor"))
    if monitors and servers and monitors != servers:
        message = f"has {monitors} addresses, and Servers has {servers}"
        instead = "write one for each server, in the same order"
        findings.error(*shared.where("Monitor"), message, instead)
    replicas = int(str(shared.values.get("replicas") or servers))
    if replicas > servers > 0:
        message = f"is {replicas}, and Servers names {servers}"
        findings.error(*shared.where("Replicas"), message, "lower it, or name all servers")
    if replicas < REPLICAS_MIN <= servers and not shared.values.get("unsafe"):
        message = f"is {replicas} of {servers}: a machine that dies takes acknowledged writes along"
        instead = f"write {REPLICAS_MIN}, or leave it out; <Unsafe>true</Unsafe> accepts it"
        findings.error(*shared.where("Replicas"), message, instead)
