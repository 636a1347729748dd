"""The rules of row-level policies: a Filter or Check may only refer to fields that exist.

The fields of a topic's records are unknown in advance. Those of a view's rows are known: a filter
over a field that they lack would hide all of them without a reason. A conflated topic has the
fields of its underlying topic.
"""

from collections.abc import Iterable, Mapping

import re2

from sow.config.binder import Section
from sow.config.diagnostics import Diagnostics
from sow.core.paths import Path
from sow.errors import ClientError
from sow.expressions import parse_projected, paths_in
from sow.security.row_level_security import read_condition


def check_guards(root: Section, roles: Iterable[Section], findings: Diagnostics) -> None:
    """Apply the rules to the Allows of roles."""
    fields = _fields_of(root)
    for role in roles:
        for allow in role.sections("allows"):
            for element in ("Filter", "Check"):
                _knows_fields(allow, element, fields, findings)


def _fields_of(root: Section) -> Mapping[str, list[Path]]:
    """The fields of rows of views, and of their copies, by the names of these."""
    found: dict[str, list[Path]] = {}
    for topic in root.sections("topics"):
        name, projection = topic.text("name"), topic.values.get("projection")
        if isinstance(projection, Section):
            try:
                texts = projection.texts("fields")
                found[name] = [parse_projected(text).target for text in texts]
            except ClientError:
                continue  # it is reported by the rules of views
        elif topic.text("underlying") in found:
            found[name] = found[topic.text("underlying")]
    return found


def _knows_fields(
    allow: Section, element: str, fields: Mapping[str, list[Path]], findings: Diagnostics
) -> None:
    text, expression = allow.text(element.lower()), allow.text("topic")
    if not text or not expression:
        return
    names = re2.compile(expression)
    for name, there in fields.items():
        if not names.fullmatch(name):
            continue
        for path in paths_in(read_condition(text)):
            if not any(_meet(path.steps, one.steps) for one in there):
                findings.error(
                    allow.line_of(element),
                    element,
                    f"refers to {path}, which rows of the view {name!r} do not have, so that it "
                    "would pass none of them",
                    "add the field to its Projection, or name it in an Allow of its own",
                )
                return


def _meet(some: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether one path is, or leads to, the other."""
    size = min(len(some), len(other))
    return some[:size] == other[:size]
