"""The rules of fields that are made: where the result of a `Field` may go."""

from sow.config.findings import Findings
from sow.config.structure import Section
from sow.errors import BadMessage
from sow.expressions import Fields, Trait, compile_fields, nested
from sow.messages.base import MessageType
from sow.paths import Path, parse_path


def check_fields(topic: Section, kind: MessageType, findings: Findings) -> None:
    """Check the Preprocessing and Enrichment of a topic whose messages are of a kind."""
    for element in ("Preprocessing", "Enrichment"):
        section = topic.values.get(element.lower())
        if not isinstance(section, Section):
            continue
        fields = compile_fields(section.texts("fields"))
        _can_be_written(section, fields, kind, findings)
        if topic.element.name == "Topic":
            _is_known(section, fields, findings)
        if element == "Enrichment" and topic.element.name == "Topic":
            _leaves_keys(topic, section, fields, findings)
            _has_a_past(topic, section, fields, findings)


UNKNOWN = {
    "Preprocessing": {
        Trait.BOOKMARK: "a message is numbered after its fields are made",
        Trait.SOW_KEY: "the key of a message is read after it is preprocessed",
        Trait.LAST_UPDATED: "a message is given its time after it is preprocessed",
        Trait.UNIX_TIMESTAMP: "a message is given its time after it is preprocessed",
    },
    "Enrichment": {Trait.BOOKMARK: "a message is numbered after its fields are made"},
}
"""What is not known yet of a message where the fields of a topic are made, and why."""


def _is_known(section: Section, fields: Fields, findings: Findings) -> None:
    unknown = UNKNOWN[section.tag]
    for trait in fields.traits:
        if trait in unknown:
            findings.error(
                section.line,
                section.tag,
                f"asks for {trait}(), and {unknown[trait]}",
                "remove it" if trait in UNKNOWN["Enrichment"] else "make the field in Enrichment",
            )


def _can_be_written(
    section: Section, fields: Fields, kind: MessageType, findings: Findings
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
    """Whether a text or a number may stand there: fields of some types are of one kind."""
    return any(_is_taken(kind, nested(target, value)) for value in ("x", 1))


def _is_taken(kind: MessageType, document: dict[str, object]) -> bool:
    try:
        kind.encode(document)
    except BadMessage:
        return False
    return True


def _leaves_keys(topic: Section, section: Section, fields: Fields, findings: Findings) -> None:
    """The key was read before a message is enriched, and the log tells it by the key fields."""
    keys = [parse_path(text) for text in topic.texts("keys")]
    for target in fields.targets:
        for key in keys:
            if all(one == other for one, other in zip(target.steps, key.steps, strict=False)):
                findings.error(
                    section.line,
                    section.tag,
                    f"makes {target}, and the key {key} has been read before a message is enriched",
                    "make it in Preprocessing",
                )


def _has_a_past(topic: Section, section: Section, fields: Fields, findings: Findings) -> None:
    if fields.of_previous and not topic.values.get("retain", True):
        findings.error(
            section.line,
            section.tag,
            "asks for what a record was before, and with Retain false no record is stored",
            "remove OF PREVIOUS or Retain",
        )
