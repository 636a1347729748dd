"""In what two definitions of one name differ: the fields, the elements of config.xml that fill
them, and which of them a reload may change.

A queue is a topic with settings of its own, and its fields are those of both. What becomes of a
difference is for others to say (`sow.engine.reconfiguration`, `sow.engine.shared_configuration`).
"""

import dataclasses
from collections.abc import Collection

from sow.config.elements.table import ROOT
from sow.core.definitions import (
    BackPressure,
    ConflatedTopic,
    Definition,
    QueueSettings,
    Topic,
    View,
)

INDEX_FIELDS = frozenset({"hash_indexes", "indexes"})
BACK_PRESSURE_FIELDS = frozenset(field.name for field in dataclasses.fields(BackPressure))
PACE_FIELDS = frozenset({"interval_us", "schedule"})
FILTER_FIELDS = frozenset({"filter"})
READ_WHEN_NEEDED = frozenset({"history", "records_max"})
"""Fields of a topic that nothing is made of: another value only has to be there."""
MADE_FIELDS = frozenset({"preprocessing", "enrichment"})
EVENT_FIELDS = frozenset({"series"})
QUEUE_FIELDS = frozenset(field.name for field in dataclasses.fields(QueueSettings))
AT_REST_FIELDS = frozenset({"underlying", "semantics", "priority", "barrier"})
"""Those that say what becomes of messages, which have come under others while there are some."""
ROW_FIELDS = frozenset(
    {"underlyings", "joins", "null_equivalency", "projection", "filter", "conflation"}
)
CHANGEABLE = INDEX_FIELDS | BACK_PRESSURE_FIELDS
CHANGEABLE_IN_SOURCES = CHANGEABLE | MADE_FIELDS | EVENT_FIELDS | READ_WHEN_NEEDED | QUEUE_FIELDS
CHANGEABLE_IN_COPIES = CHANGEABLE | PACE_FIELDS | FILTER_FIELDS
CHANGEABLE_IN_VIEWS = CHANGEABLE | ROW_FIELDS
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


def changeable(old: Definition, new: Definition) -> frozenset[str]:
    """The fields of a definition that a reload may change."""
    if isinstance(new, View):
        return CHANGEABLE_IN_VIEWS
    if isinstance(new, ConflatedTopic):
        return CHANGEABLE_IN_COPIES if new.engine == "embedded" else CHANGEABLE
    is_series = isinstance(old, Topic) and old.series and new.series
    return CHANGEABLE_IN_SOURCES if is_series else CHANGEABLE_IN_SOURCES - EVENT_FIELDS


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
