"""The `MessageTypes` of a document: variants, records and composites under names of their own.

The parts of a composite are names of built-in types or of other entries, in any order. They are
resolved here, so that every entry contains the options of its parts, and mistakes are reported at
the line of the part: a missing one, a cycle, too many. An entry that was refused is recorded as
such, and topics of its type are not reported.
"""

from typing import NamedTuple, cast

from sow.config.binder import Section
from sow.config.diagnostics import Diagnostics, at, halves
from sow.core.definitions import MessageTypeOptions, RecordField, RecordFieldType
from sow.errors import ClientError, ConfigError
from sow.messages import message_type
from sow.messages.composite import NO_PART
from sow.messages.separated import mistakes

SEPARATOR = b"\x01"
"""The field separator where none is configured: that of FIX."""
WITH_FIELDS = {"record": b"\x02"}
"""Types whose fields are configured, each with its own such separator: a U+0001 ends records."""
WITH_SEPARATOR = ("fix", "nvfix", *WITH_FIELDS)
COMPOSITES = ("composite-local", "composite-global")
PARTS_MAX = 100
"""Parts of one type, nested ones included: each is a decoder that reads every message."""
LEVELS_MAX = 4
"""Composites within each other: with the 250 levels that the parts may have, still a document that
can be written as JSON."""

Known = dict[str, MessageTypeOptions | None]
"""The entries by name; None for one that was refused."""


def check_message_types(root: Section, findings: Diagnostics) -> Known:
    """Report what is wrong with the entries, and return them."""
    return _Entries(root, findings).known


def message_types_of(root: Section) -> tuple[MessageTypeOptions, ...]:
    """The entries of a document that has nothing wrong."""
    known = check_message_types(root, Diagnostics(""))
    return tuple(options for options in known.values() if options is not None)


class _Resolved(NamedTuple):
    """An entry in full, how many parts it has on all levels, and how many levels."""

    options: MessageTypeOptions
    parts: int = 0
    levels: int = 0


class _Entries:
    """Follows names from entry to entry; each is followed once."""

    def __init__(self, root: Section, findings: Diagnostics) -> None:
        self._findings = findings
        self._sections: dict[str, Section] = {}
        for section in root.sections("message_types"):
            self._enter(section)
        self._named = {name: _options(one) for name, one in self._sections.items()}
        self._resolved: dict[str, _Resolved | None] = {}
        for name in self._sections:
            self._resolve(name, ())
        self.known: Known = {}
        for name in self._sections:
            found = self._resolved[name]
            self.known[name] = None if found is None else found.options

    def _enter(self, section: Section) -> None:
        name = section.text("name")
        if name in self._sections:
            line = section.line_of("Name")
            other = at(self._sections[name].line, line)
            message = f"the message type {name!r} is already defined in {other}"
            self._findings.error(line, "Name", message, "give it another name")
        elif name and section.text("module"):
            self._sections[name] = section

    def _resolve(self, name: str, above: tuple[str, ...]) -> _Resolved | None:
        """An entry in full, or None if something is wrong with it or below it. `above` are the
        entries that it is a part of."""
        if name not in self._resolved:
            section, options = self._sections[name], self._named[name]
            found = self._in_full(section, options, (*above, name))
            self._resolved[name] = found if self._is_good(section, options) else None
        return self._resolved[name]

    def _in_full(
        self, section: Section, options: MessageTypeOptions, above: tuple[str, ...]
    ) -> _Resolved | None:
        found = [self._part(part, above) for part in options.parts]
        parts = [part for part in found if part is not None]
        if len(parts) < len(found):
            return None
        count = sum(1 + part.parts for part in parts)
        levels = max((1 + part.levels for part in parts), default=0)
        if count > PARTS_MAX or levels > LEVELS_MAX:
            what, most = (
                (f"{count} parts on all levels", PARTS_MAX)
                if count > PARTS_MAX
                else (f"{levels} levels of composites", LEVELS_MAX)
            )
            message = f"{options.name!r} has {what}, and {most} are the most"
            self._findings.error(*section.place("Module"), message, "put less into one message")
            return None
        whole = MessageTypeOptions(
            options.name,
            options.module,
            options.field_separator,
            options.fields,
            tuple(part.options for part in parts),
            options.line,
        )
        return _Resolved(whole, count, levels)

    def _part(self, part: MessageTypeOptions, above: tuple[str, ...]) -> _Resolved | None:
        """A part that an entry names; the last of `above`."""
        if not part.name:
            return None
        if part.name in above:
            circle = " of ".join([*above[above.index(part.name) :], part.name])
            message = f"{part.name!r} would be a part of itself: {circle}"
            self._findings.error(part.line, "MessageType", message, "name another type")
            return None
        if part.name in self._sections:
            if len(above) > PARTS_MAX:
                # Each level has a part, so there are too many; the stack has an end, too.
                message = f"{above[0]!r} has more than {PARTS_MAX} parts within each other"
                self._findings.error(part.line, "MessageType", message, "name another type")
                return None
            if self._named[part.name].module == "composite-global":
                # What is left of its fields by a select list or a delta may fit in no part of it.
                message = f"{part.name!r} is a composite-global, which is whole or not at all"
                self._findings.error(part.line, "MessageType", message, "name its parts instead")
                return None
            return self._resolve(part.name, above)
        try:
            message_type(part.name, self._named)
        except (ClientError, ConfigError) as error:
            self._findings.error(part.line, "MessageType", *halves(error.detail))
            return None
        return _Resolved(part)

    def _is_good(self, section: Section, options: MessageTypeOptions) -> bool:
        """Whether an entry has the options that its module needs, and no others; parts aside."""
        found: list[ConfigError] = []
        names = [*(one.name for one in options.fields), *(one.name for one in options.parts)]
        if not all(names):
            return False  # unreadable, and already reported
        if options.module in WITH_FIELDS:
            found = list(mistakes(options))
        elif options.module in COMPOSITES:
            if not options.parts:
                found = [ConfigError(NO_PART, element="Module")]
        else:
            try:
                message_type(options.name, {options.name: options})
            except ClientError as error:
                found = [ConfigError(error.detail, element="Module")]
        for mistake in found:
            element = mistake.element
            line = mistake.line if element == "Field" else section.line_of(element)
            self._findings.error(line, element, *halves(mistake.detail))
        return not self._is_strange(section, options) and not found

    def _is_strange(self, section: Section, options: MessageTypeOptions) -> bool:
        """Whether it has elements that its module has no use for."""
        module, found = options.module, False
        for element, modules, what in (
            ("FieldSeparator", WITH_SEPARATOR, "field separators"),
            ("Field", WITH_FIELDS, "fields that are named here"),
            ("MessageType", COMPOSITES, "parts"),
        ):
            if element in section.lines and module not in modules:
                found = True
                self._findings.error(
                    *section.where(element),
                    f"{module} has no {what}",
                    f"remove it, or write one of {', '.join(modules)} as Module",
                )
        return found


def _options(section: Section) -> MessageTypeOptions:
    """An entry as it is written: of its parts only the names."""
    module = section.text("module")
    return MessageTypeOptions(
        section.text("name"),
        module,
        cast("bytes", section.values.get("field_separator", WITH_FIELDS.get(module, SEPARATOR))),
        tuple(
            RecordField(
                field.text("name"),
                cast("RecordFieldType", field.text("type") or "string"),
                field.line,
            )
            for field in section.sections("fields")
        ),
        tuple(
            MessageTypeOptions(part.text("name"), part.text("name"), line=part.line)
            for part in section.sections("parts")
        ),
        section.line,
    )
