"""The rules of topics that are made of others: views and queues.

The underlying topics of a view exist, above it, and have the fields that it uses. The fields of
records are known in three cases: a view, whose rows have exactly what it projects; a type with
configured fields (records and composites); and a copy of either. In all others a missing field is
NULL, and may still appear in later records.

The underlying topic of a queue is one that clients publish to and that the log has, defined above
the queue. A queue is only consumed: nothing is made of it, and no dead message becomes a new one of
the same queue.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from conflated_topics.user_texts import nearest
from sow.config.binder import Section
from sow.config.diagnostics import Diagnostics, halves
from sow.config.rules.topic_rules import (
    has_place,
    is_many,
    names_above,
    report_missing,
    underlyings,
)
from sow.core.definitions import MessageTypeOptions
from sow.core.join_tree import BadJoin, Join, JoinType, join_levels
from sow.core.paths import Path, parse_path
from sow.errors import ClientError, ConfigError, shown
from sow.expressions import (
    LAST,
    ORDERLESS,
    UNSTEADY,
    Projection,
    compile_filter,
    compile_projection,
)
from sow.messages import MessageType, message_type
from sow.messages.composite import missing

EMBEDDED = "write embedded"


def check_views(
    root: Section, kinds: Mapping[str, MessageTypeOptions | None], findings: Diagnostics
) -> None:
    """Check each view against what is defined above it."""
    variants = {name: options for name, options in kinds.items() if options is not None}
    for view, above in names_above(root):
        if view.element.name == "View":
            _View(root, view, above, variants, findings).check()


@dataclass
class _View:
    """A view while it is checked, with the topics `above` it by name."""

    root: Section
    view: Section
    above: Mapping[str, Section]
    variants: Mapping[str, MessageTypeOptions]
    findings: Diagnostics

    def check(self) -> None:
        """Report all that is wrong."""
        view = self.view
        self._underlying()
        self._engine()
        if "Join" not in view.lines and "JoinNullEquivalency" in view.lines:
            self._error("JoinNullEquivalency", "has no effect without a Join", "remove it")
        self._filter()
        if "Join" in view.lines and "Filter" in view.lines:
            self._error(
                "Filter",
                "a view of several topics has no Filter",
                "make a view or a ConflatedTopic of each topic with its own Filter, and join these",
            )
        kind = self._kind(view)
        if kind is not None and not (kind.structured and kind.partial):
            self._error(
                "MessageType",
                f"a message of the type {kind.name} cannot be made field by field",
                "choose a type with fields, such as json",
            )
            kind = None
        topics = {name: self.above[name] for name in underlyings(view) if name in self.above}
        if topics and len(topics) == len(underlyings(view)):
            projection = self._projection(topics)
            self._joins(topics)
            if projection is not None:
                self._fields(projection, topics)
                self._aggregates(projection)
                self._rows(projection, kind)

    def _error(self, element: str, message: str, instead: str) -> None:
        line, tag = self.view.place(element)
        self.findings.error(line, tag if element in self.view.lines else element, message, instead)

    # Its underlying topics.

    def _underlying(self) -> None:
        view = self.view
        if "Topic" in view.lines and "Join" in view.lines:
            self._error(
                "Topic",
                "UnderlyingTopic names one topic and joins several",
                "leave out the name; the first Join begins with the topic that is preserved",
            )
        if not {"Topic", "Join"} & view.lines.keys() and "UnderlyingTopic" in view.lines:
            self._error("UnderlyingTopic", "names no topic", "write its name, or a Join")
        for name, line, element in self._named():
            topic = self.above.get(name)
            if topic is None:
                report_missing(self.root, view, name, (line, element), self.findings)
            else:
                self._can_underlie(name, topic, line, element)
        name = view.text("underlyings")
        if name in self.above and (why := _another(view.text("underlying_type"), self.above[name])):
            line = view.line_of("UnderlyingTopic")
            self.findings.error(line, "UnderlyingTopic", *halves(why))

    def _named(self) -> Iterator[tuple[str, int, str]]:
        """Each underlying topic once, with the place that names it."""
        view, seen = self.view, set()
        if name := view.text("underlyings"):
            seen.add(name)
            yield name, view.line_of("UnderlyingTopic"), "UnderlyingTopic"
        for join in view.sections("joins"):
            for name in (join.text("left_topic"), join.text("right_topic")):
                if name and name not in seen:
                    seen.add(name)
                    yield name, join.line, join.tag

    def _can_underlie(self, name: str, topic: Section, line: int, element: str) -> None:
        message, instead = "", ""
        kind = self._kind(topic)
        if is_many(topic):
            message = f"{name!r} is a pattern of topics, and a view is made of single ones"
            instead = "name a topic that is defined by itself"
        elif not topic.values.get("retain", True):
            message = f"{name!r} has Retain false, so there are no records to make rows of"
            instead = "remove Retain there"
        elif kind is not None and not kind.structured:
            message = f"messages of {name!r} have no fields ({kind.name}) to group by"
            instead = "choose a type with fields for it, such as json"
        if message:
            self.findings.error(line, element, message, instead)

    def _joins(self, topics: Mapping[str, Section]) -> None:
        """The topics that are joined make a tree, by fields that their records can have."""
        sections = [one for one in self.view.sections("joins") if "left_topic" in one.values]
        joins = [
            Join(
                one.text("left_topic"),
                one.text("left_field"),
                one.text("right_topic"),
                one.text("right_field"),
                cast("JoinType", one.values.get("type", "left")),
            )
            for one in sections
        ]
        for section, join in zip(sections, joins, strict=True):
            for name, field, kind in (
                (join.left_topic, join.left_field, section.text("left_type")),
                (join.right_topic, join.right_field, section.text("right_type")),
            ):
                if why := _another(kind, topics[name]) or self._never(
                    topics[name], parse_path(field)
                ):
                    self.findings.error(section.line, section.tag, *halves(why))
        if len(joins) < len(self.view.sections("joins")) or not joins:
            return
        try:
            join_levels(joins)
        except BadJoin as error:
            at = next(at for at, one in enumerate(joins) if one is error.join)
            self.findings.error(sections[at].line, sections[at].tag, *halves(error.detail))

    def _filter(self) -> None:
        """The previous state of a record must determine whether it passed the filter."""
        text = self.view.text("filter")
        for trait in sorted(UNSTEADY.intersection(compile_filter(text).traits)) if text else ():
            self._error(
                "Filter",
                f"uses {trait}(), which differs at each change of a record",
                "use a field of the record",
            )

    def _engine(self) -> None:
        """Spark reads the log of one topic, and keeps only aggregates that do not depend on the
        order of records."""
        view = self.view
        if view.text("engine") != "spark":
            return
        if "Join" in view.lines:
            self._error(
                "Engine", "spark does not join, and the view is of several topics", EMBEDDED
            )
        above = [self.above[name] for name in underlyings(view) if name in self.above]
        for name, topic in ((topic.text("name"), topic) for topic in above):
            if not _is_logged(topic):
                self._error("Engine", f"spark reads the log of {name!r}, which has none", EMBEDDED)
        if (text := view.text("filter")) and compile_filter(text).traits:
            self._error(
                "Engine",
                "spark filters rows by their fields alone, and Filter uses more of the message",
                EMBEDDED,
            )

    def _aggregates(self, projection: Projection) -> None:
        """Report aggregates that Spark does not maintain."""
        if self.view.text("engine") != "spark":
            return
        line = self._section("Projection").line_of("Field")
        for one in projection.aggregates:
            text = projection.arguments[one.argument].text
            argument = text.replace(f"[{self.view.text('underlyings')}].", "")
            if one.kind == LAST:
                self.findings.error(
                    line,
                    "Projection",
                    f"spark does not know which record changed last, so it has no last {argument}",
                    f"group by it, write MAX({argument}) AS …, or leave the view to the embedded "
                    "engine",
                )
            elif one.kind not in ORDERLESS:
                self.findings.error(
                    line,
                    "Projection",
                    f"spark does not keep {one.kind}({argument})",
                    f"write {', '.join(ORDERLESS[:-1])} or {ORDERLESS[-1]}, or leave the view to "
                    "the embedded engine",
                )

    # What its rows hold.

    def _projection(self, topics: Mapping[str, Section]) -> Projection | None:
        projected, grouped = self._texts("projection"), self._texts("grouping")
        if not projected or not grouped or not self._all_read():
            return None
        types = {name: topic.text("message_type") for name, topic in topics.items()}
        for element, texts in (("Projection", projected), ("Grouping", grouped)):
            section = self._section(element)
            for at in range(len(texts)):
                # Each alone first, so that the finding is about one.
                one = texts[at : at + 1]
                is_row = element == "Projection"
                line = section.line_at("Field", at)
                try:
                    compile_projection(one if is_row else (), () if is_row else one, types)
                except ClientError as error:
                    self.findings.error(line, element, *halves(error.detail))
                    return None
        try:
            return compile_projection(projected, grouped, types)
        except ClientError as error:
            section = self._section("Projection")
            self.findings.error(section.line_of("Field"), "Projection", *halves(error.detail))
            return None

    def _all_read(self) -> bool:
        """Whether every field could be read by itself."""
        return all(
            len(self._texts(one.lower())) == len(self._section(one).every_line["Field"])
            for one in ("Projection", "Grouping")
        )

    def _section(self, element: str) -> Section:
        section = self.view.values[element.lower()]
        assert isinstance(section, Section)
        return section

    def _texts(self, field: str) -> list[str]:
        section = self.view.values.get(field)
        return section.texts("fields") if isinstance(section, Section) else []

    def _fields(self, projection: Projection, topics: Mapping[str, Section]) -> None:
        """Fields that no record of the underlying topics can have."""
        for source in projection.inputs:
            if why := self._never(topics[source.topic], source.path):
                element = "Grouping" if source in projection.grouping else "Projection"
                section = self._section(element)
                self.findings.error(section.line_of("Field"), element, *halves(why))
        if (text := self.view.text("filter")) and len(topics) == 1:
            (topic,) = topics.values()
            for path in compile_filter(text).paths:
                if why := self._never(topic, path):
                    self._error("Filter", *halves(why))

    def _never(self, topic: Section, path: Path) -> str:
        """Why no record of a topic can have a value there; "" if one can."""
        name = topic.text("name")
        if topic.element.name == "View":
            targets = self._targets(topic)
            if targets is None or any(_meet(path, target) for target in targets):
                return ""
            near = nearest(str(path), map(str, targets))
            return (
                f"no row of the view {name!r} has {path}: it projects "
                f"{shown(', '.join(map(str, targets)))}; "
                + (f"did you mean {near}?" if near else "project it there")
            )
        if topic.element.name == "ConflatedTopic":
            below = self.above.get(topic.text("underlying"))
            made = topic.values.get("enrichment")
            return "" if below is None or made is not None else self._never(below, path)
        kind = self._kind(topic)
        return "" if kind is None or "Enrichment" in topic.lines else missing(kind, path)

    def _targets(self, view: Section) -> list[Path] | None:
        """The fields of a view above; None if its projection could not be read."""
        made_of = underlyings(view)
        types = {n: self.above[n].text("message_type") for n in made_of if n in self.above}
        projection = view.values.get("projection")
        if not isinstance(projection, Section) or len(types) < len(made_of):
            return None
        texts = projection.texts("fields")
        if len(texts) < len(projection.every_line.get("Field", [])):
            return None
        try:
            return list(compile_projection(texts, (), types).targets)
        except ClientError:
            return None

    def _rows(self, projection: Projection, kind: MessageType | None) -> None:
        """Report fields that the message type cannot hold, and indexes of fields in no row."""
        section = self._section("Projection")
        for target in projection.targets:
            if kind is not None and not has_place(kind, target):
                self.findings.error(
                    section.line_of("Field"),
                    "Projection",
                    f"a message of the type {kind.name} has no place for {target}",
                    "write a path of one name, without the characters that separate fields"
                    if len(target.steps) > 1
                    else "write another name",
                )
        for element, texts, place in self._indexed():
            for text in filter(None, texts):
                if not any(_meet(parse_path(text), target) for target in projection.targets):
                    self.findings.warning(
                        *place.where(element),
                        f"no row has {text}, so the index finds nothing",
                        "name a field as it is projected: "
                        + shown(", ".join(map(str, projection.targets))),
                    )

    def _indexed(self) -> Iterator[tuple[str, list[str], Section]]:
        yield "Index", self.view.texts("indexes"), self.view
        for index in self.view.sections("hash_indexes"):
            yield "Key", index.texts("keys"), index

    def _kind(self, topic: Section) -> MessageType | None:
        name = topic.text("message_type")
        try:
            return message_type(name, self.variants) if name else None
        except (ClientError, ConfigError):
            return None  # reported with the topic


def _another(kind: str, topic: Section) -> str:
    """Why this message type is not the topic's; "" if it is, or if none was given."""
    name, own = topic.text("name"), topic.text("message_type")
    if kind in ("", own) or not own:
        return ""
    return f"the messages of {name!r} are {own}, not {kind}; write [{own}].[{name}], or [{name}]"


def _is_logged(topic: Section) -> bool:
    """Whether the server logs the changes of a topic's records."""
    if topic.element.name == "View":
        return topic.text("engine") == "spark"
    return topic.element.name == "Topic" and topic.text("durability") != "transient"


def _meet(path: Path, target: Path) -> bool:
    """Whether one path is the other, or a part of it."""
    return all(one == other for one, other in zip(path.steps, target.steps, strict=False))


OF_LEASES = ("LeasePeriod", "MaxDeliveries", "DeadLetterTopic", "MaxBacklog")
"""Elements without an effect where a message is gone when it is delivered."""


def check_queues(root: Section, findings: Diagnostics) -> None:
    """Check each queue against what is defined above it, and that nothing is made of one."""
    for topic, above in names_above(root):
        if topic.element.name == "Queue":
            _source(root, topic, above, findings)
            _dead_letters(root, topic, above, findings)
            _semantics(topic, findings)
            _barrier(topic, findings)
        else:
            _not_of_queues(topic, above, findings)


def _source(
    root: Section, queue: Section, above: Mapping[str, Section], findings: Diagnostics
) -> None:
    place, name = queue.where("UnderlyingTopic"), queue.text("underlying")
    source = above.get(name)
    if source is None:
        if name:
            report_missing(root, queue, name, place, findings)
    elif source.element.name != "Topic" or is_many(source):
        findings.error(
            *place,
            f"{name!r} is no single topic that clients publish to",
            "name a Topic without a Pattern",
        )
    elif source.text("durability") == "transient":
        findings.error(
            *place,
            f"{name!r} is transient, and messages of a queue survive a restart",
            f"make {name!r} persistent",
        )
    else:
        _agree(queue, source, "UnderlyingTopic", findings)


def _agree(queue: Section, other: Section, element: str, findings: Diagnostics) -> None:
    own, others = queue.text("message_type"), other.text("message_type")
    if own and others and own != others:
        findings.error(
            *queue.where(element),
            f"{other.text('name')!r} has the message type {others}, and the queue {own}",
            f"write {others} as MessageType of both",
        )


def _dead_letters(
    root: Section, queue: Section, above: Mapping[str, Section], findings: Diagnostics
) -> None:
    name, place = queue.text("dead_letters"), queue.where("DeadLetterTopic")
    if not name:
        return
    topic = above.get(name)
    if "MaxDeliveries" not in queue.lines:
        findings.error(
            *place,
            "gets what was delivered MaxDeliveries times, and there is no such limit",
            "add MaxDeliveries, or remove it",
        )
    if topic is None:
        report_missing(root, queue, name, place, findings)
    elif name == queue.text("underlying"):
        findings.error(
            *place,
            f"{name!r} is the underlying topic, so that each dead message would be a new one",
            "name another Topic",
        )
    elif queue.text("underlying") in _reached(root, name):
        findings.error(
            *place,
            f"dead messages of {name!r} come back to {queue.text('underlying')!r} by other queues, "
            "so that none would ever be dead",
            "name another Topic",
        )
    elif topic.element.name != "Topic" or is_many(topic):
        findings.error(
            *place,
            f"{name!r} is no single topic that is published to",
            "name a Topic without a Pattern",
        )
    else:
        _agree(queue, topic, "DeadLetterTopic", findings)


def _reached(root: Section, name: str) -> set[str]:
    """Where dead messages of a topic come to through queues."""
    reached, coming = set[str](), [name]
    while coming:
        source = coming.pop()
        for one in root.sections("topics"):
            letters = one.text("dead_letters")
            if letters and one.text("underlying") == source and letters not in reached:
                reached.add(letters)
                coming.append(letters)
    return reached


def _semantics(queue: Section, findings: Diagnostics) -> None:
    for element in OF_LEASES if queue.text("semantics") == "at-most-once" else ():
        if element in queue.lines:
            findings.error(
                *queue.where(element),
                "is of leases, and at-most-once has none: a message leaves the queue when it is "
                "delivered",
                f"remove {element}, or write at-least-once as Semantics",
            )


def _barrier(queue: Section, findings: Diagnostics) -> None:
    text = queue.text("barrier")
    if text and compile_filter(text).traits:
        findings.error(
            *queue.where("BarrierExpression"),
            "uses more than the fields of a message, and has to say the same after a restart",
            "compare fields alone",
        )


def _not_of_queues(topic: Section, above: Mapping[str, Section], findings: Diagnostics) -> None:
    for name in underlyings(topic):
        if name in above and above[name].element.name == "Queue":
            source = above[name].text("underlying")
            findings.error(
                *topic.where("UnderlyingTopic"),
                f"{name!r} is a queue, which is only consumed",
                f"name its underlying topic, {source}",
            )
