"""In what two definitions of one name differ: the fields, and the elements of config.xml that fill
them.

A queue is a topic with settings of its own, and its fields are those of both. What becomes of a
difference is for others to say (`sow.engine.reconfiguration`, `sow.engine.shared_configuration`).
"""

import dataclasses
from collections.abc import Collection

from sow.config.elements.table import ROOT
from sow.core.definitions import Definition, QueueSettings, Topic, View

SECTION = next(child for child in ROOT.children if child.name == "SOW")
"""The element that definitions are in."""


def kind_of(definition: Definition) -> str:
    """What a definition is called."""
    if isinstance(definition, Topic):
        return "queue" if definition.queue else "view" if definition.view else "topic"
    return "view" if isinstance(definition, View) else "conflated topic"


def changed_fields(old: Definition | QueueSettings, new: Definition | QueueSettings) -> set[str]:
    """The fields in which two definitions of one kind differ."""
    names = {field.name for field in dataclasses.fields(new)} - {"line"}
    found = {name for name in names if getattr(old, name) != getattr(new, name)}
    if "queue" in found:
        assert isinstance(old, Topic)
        assert isinstance(new, Topic)
        if old.queue and new.queue:
            found = found - {"queue"} | changed_fields(old.queue, new.queue)
    return found


def elements_of(old: Definition, new: Definition, fields: Collection[str]) -> list[str]:
    """The elements of config.xml that fill these fields."""
    if isinstance(old, Topic) and isinstance(new, Topic) and old.view and new.view:
        # It is run by Spark, and stored as a topic: its elements are those of the view.
        old, new = old.view, new.view
        fields = changed_fields(old, new)
    return filling(new, fields)


def changed_elements(old: Definition, new: Definition) -> list[str]:
    """The elements of config.xml in which two definitions of one kind differ."""
    return elements_of(old, new, changed_fields(old, new))


def filling(definition: Definition, fields: Collection[str]) -> list[str]:
    """The elements that fill fields of a definition, in the element that is called as its class."""
    is_queue = isinstance(definition, Topic) and definition.queue is not None
    section = SECTION.child("Queue" if is_queue else type(definition).__name__)
    assert section is not None
    return sorted({section.filling(name) for name in fields})
