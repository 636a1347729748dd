"""Configurations as text: how the ones that were in force are kept beside the log.

A definition is plain data, so its text is its fields by their names, as JSON, without those that
have their default. A later release may have other fields: what it does not know it leaves out, and
what it misses gets its default. Neither secrets of pipelines nor lines of the file are kept.
"""

import json
from dataclasses import fields, is_dataclass
from typing import Any

from sow.core import definitions, security_definitions
from sow.core.definitions import Configuration, with_system_topics, without_secrets

KIND = "is"
"""Names the class of an object; no field is called so."""
KINDS: dict[str, type] = {
    name: kind
    for module in (definitions, security_definitions)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and is_dataclass(kind)
}


def text_of(configuration: Configuration) -> str:
    """The text of a configuration that a server runs; equal ones have the same."""
    requested = without_secrets(configuration)
    return json.dumps(_described(requested, but=("pipelines", "data_directory")))


def configuration_of(text: str) -> Configuration:
    """The configuration of a text, as a server runs it; raises ValueError."""
    try:
        found = _made(json.loads(text))
    except (TypeError, KeyError) as error:
        raise ValueError(f"this is not the text of a configuration: {error}") from error
    if not isinstance(found, Configuration):
        raise ValueError("this is not the text of a configuration")
    return with_system_topics(found)


def _described(value: Any, but: tuple[str, ...] = ()) -> Any:
    if isinstance(value, tuple):
        return [_described(one) for one in value]
    if isinstance(value, bytes):
        return {KIND: "bytes", "text": value.decode("latin-1")}
    if not is_dataclass(value):
        return value
    held: dict[str, Any] = {KIND: type(value).__name__}
    for one in fields(value):
        part = getattr(value, one.name)
        if one.name not in ("line", *but) and part != one.default:
            held[one.name] = _described(part)
    return held


def _made(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_made, value))
    if not isinstance(value, dict):
        return value
    if value[KIND] == "bytes":
        return value["text"].encode("latin-1")
    kind = KINDS[value[KIND]]
    known = {one.name for one in fields(kind)}
    return kind(**{name: _made(part) for name, part in value.items() if name in known})
