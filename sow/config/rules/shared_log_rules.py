"""The rules of `<Log>`: what each engine needs, what belongs to another one, and which settings
are unsafe as far as the file says so.

The settings of the engine itself are read by its adapter, when the server starts.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

from sow.config.binder import Section
from sow.config.diagnostics import Diagnostics

REPLICAS_MIN = 3
"""Of two, none may fail."""


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
    for address in given:
        scheme = address.rpartition("://")[0].partition("://")[0]
        if scheme not in schemes or address.endswith("://"):
            # The rest may be a password.
            called = f"an address of {scheme}" if scheme else "an address without its scheme"
            findings.error(*shared.where(element), f"{called} is none that it takes", instead)


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
