"""The rules of fields that are made: where the result of a `Field` may go."""

from sow.config.binder import Section
from sow.config.diagnostics import Diagnostics
from sow.core.paths import Path, parse_path
from sow.errors import BadMessage
from sow.expressions import Fields, Trait, compile_fields, nested
from sow.messages.base import MessageType


def check_fields(topic: Section, kind: MessageType, findings: Diagnostics) -> None:
    """Check the Preprocessing and Enrichment of a topic with messages of a type, one field at a
    time, so that each finding is about one field."""
    for element in ("Preprocessing", "Enrichment"):
        section = topic.values.get(element.lower())
        if not isinstance(section, Section):
            continue
        for text in section.texts("fields"):
            fields = compile_fields([text])
            _can_be_written(section, fields, kind, findings)
            if topic.element.name == "Topic":
                _is_known(topic, section, fields, findings)
                if element == "Enrichment":
                    _leaves_keys(topic, section, fields, findings)
                    _has_a_past(topic, section, fields, findings)


UNKNOWN = {
    "Preprocessing": {
        Trait.BOOKMARK: ("a message is numbered after its fields are made", "remove it"),
        Trait.SOW_KEY: (
            "the key of a message is read after it is preprocessed",
            "make the field in Enrichment",
        ),
        Trait.LAST_UPDATED: (
            "a message is given its time after it is preprocessed",
            "write UNIX_TIMESTAMP(), the time at which it came",
        ),
    },
    "Enrichment": {
        Trait.BOOKMARK: ("a message is numbered after its fields are made", "remove it"),
    },
}
"""Traits that are unknown when the fields of a topic are made, the reason, and the remedy."""


def _is_known(topic: Section, section: Section, fields: Fields, findings: Diagnostics) -> None:
    unknown = UNKNOWN[section.tag]
    for trait in fields.traits:
        if trait in unknown:
            why, instead = unknown[trait]
            if trait is Trait.SOW_KEY and _of_keys(topic, fields):
                instead = "remove it: no key is made of itself"
            findings.error(section.line, section.tag, f"uses {trait}(), and {why}", instead)


def _can_be_written(
    section: Section, fields: Fields, kind: MessageType, findings: Diagnostics
) -> None:
    for target in fields.targets if kind.partial else ():
        if not has_place(kind, target):
            findings.error(
                section.line,
                section.tag,
                f"a message of the type {kind.name} has no place for {target}",
                "write a path of one name, without the characters that separate fields"
                if len(target.steps) > 1
                else "write another name",
            )


def has_place(kind: MessageType, target: Path) -> bool:
    """Whether a text or a number fits there: fields of some types are of one kind."""
    return any(_is_taken(kind, nested(target, value)) for value in ("x", 1))


def _is_taken(kind: MessageType, document: dict[str, object]) -> bool:
    try:
        kind.encode(document)
    except BadMessage:
        return False
    return True


def _of_keys(topic: Section, fields: Fields) -> list[tuple[Path, Path]]:
    """Which fields are made that a key is read from, lie in it, or hold it; each with the key."""
    keys = [parse_path(text) for text in topic.texts("keys")]
    return [
        (target, key)
        for target in fields.targets
        for key in keys
        if all(one == other for one, other in zip(target.steps, key.steps, strict=False))
    ]


def _leaves_keys(topic: Section, section: Section, fields: Fields, findings: Diagnostics) -> None:
    """The key is read before a message is enriched, and the log derives it from the key fields."""
    instead = "make it in Preprocessing"
    if Trait.SOW_KEY in fields.traits:
        instead = "write it into another field: no key is made of itself"
    elif fields.of_previous:
        instead += " without OF PREVIOUS: before its key is read a message has no past"
    elif Trait.LAST_UPDATED in fields.traits:
        instead += " of UNIX_TIMESTAMP(), the time at which it came"
    for target, key in _of_keys(topic, fields):
        findings.error(
            section.line,
            section.tag,
            f"makes {target}, and the key {key} has been read before a message is enriched",
            instead,
        )


def _has_a_past(topic: Section, section: Section, fields: Fields, findings: Diagnostics) -> None:
    if fields.of_previous and not topic.values.get("retain", True):
        findings.error(
            section.line,
            section.tag,
            "reads the previous state of a record, and with Retain false no record is stored",
            "remove OF PREVIOUS or Retain",
        )
