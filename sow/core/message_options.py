"""Options of message types across time and distance: written as JSON, read again, and compared.

The manifest keeps with a topic the options by which its stored messages were read, and Spark
queries the server for them. The options of a composite contain those of its parts, so a reader
needs nothing else.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from sow.core.definitions import MessageTypeOptions, RecordField


def described(options: MessageTypeOptions) -> dict[str, Any]:
    """Options as JSON can say them, for `options_of`."""
    return {
        "name": options.name,
        "module": options.module,
        "field_separator": options.field_separator.decode("latin-1"),
        "fields": [{"name": field.name, "type": field.type} for field in options.fields],
        "parts": list(map(described, options.parts)),
    }


def options_of(said: Mapping[str, Any]) -> MessageTypeOptions:
    """The options that were described; raises KeyError and TypeError for what is no description."""
    return MessageTypeOptions(
        said["name"],
        said["module"],
        said["field_separator"].encode("latin-1"),
        fields_of(said.get("fields", ())),
        tuple(map(options_of, said.get("parts", ()))),
    )


def fields_of(said: Iterable[Mapping[str, Any]]) -> tuple[RecordField, ...]:
    """The fields of a record that were described."""
    return tuple(RecordField(field["name"], field["type"]) for field in said)


def reads(new: MessageTypeOptions | None, old: MessageTypeOptions | None) -> bool:
    """Whether a type with the options `new` finds in messages of the type `old` what that found.

    None stands for a type as it comes. A record may have got more fields at its end, which old
    messages then lack, and a part of a composite may have been called something else.
    """
    if new is None or old is None:
        return new is old
    before = len(old.fields)
    return (
        (new.module, new.field_separator) == (old.module, old.field_separator)
        and new.fields[:before] == old.fields
        and len(new.parts) == len(old.parts)
        and all(map(reads, new.parts, old.parts))
    )
