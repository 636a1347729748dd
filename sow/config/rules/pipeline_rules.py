"""The rules of `<Pipelines>`: names, and what a source or a sink needs."""

from collections.abc import Mapping

from sow.config.binder import Section
from sow.config.diagnostics import Diagnostics, at
from sow.config.rules.pipeline_options import check_options, check_settings
from sow.config.rules.pipeline_views import check_views
from sow.config.rules.source_rules import definition_of
from sow.core.pipelines import FILES, KNOWN_FORMATS, SPARKS_FORMATS, TIME_COLUMNS
from sow.core.source_options import LOG, RECORDS, STREAM, STREAM_WRITE, WRITE, plain
from sow.core.suggest import nearest

Names = Mapping[str, str]
READ_ONLY: Names = {
    "sow": "write <Topic>…</Topic> instead, the topic of this server",
    "rate": "it makes rows and takes none; write a Topic, or another Format",
}
"""Formats of a Source that no Sink has, and what to write instead."""
USELESS = {
    "sow": ("Path",),
    "kafka": ("Path", "Topic", "Schema"),
    "rate": ("Path", "Topic", "Schema"),
}
"""Elements that a format makes nothing of; of the others it is a Topic."""
WHERE = {
    "sow": "its rows come from its Topic",
    "kafka": "its topic is the option subscribe, and its columns are its own",
    "rate": "it makes its rows itself",
}


def check_pipelines(root: Section, findings: Diagnostics) -> None:
    """Check each pipeline, and against the topics of the document."""
    topics = {topic.text("name"): topic for topic in root.sections("topics")}
    lines: dict[str, int] = {}
    checkpoints: dict[str, int] = {}
    for pipeline in root.sections("pipelines"):
        name, line = pipeline.text("name"), pipeline.line_of("Name")
        if name in lines:
            message = f"the name {name!r} is already used in {at(lines[name], line)}"
            findings.error(line, "Name", message, "choose another one")
        lines.setdefault(name, line)
        _checkpoint(pipeline, checkpoints, findings)
        check_views(pipeline, findings)
        for section in _with_formats(pipeline):
            _near(section, findings)
        for source in pipeline.sections("sources"):
            _source(source, topics, findings)
            check_options(source, STREAM, findings)
            _time(pipeline, source, findings)
        for static in pipeline.sections("statics"):
            _static(static, topics, findings)
        sink = pipeline.values.get("sink")
        if isinstance(sink, Section):
            _sink(sink, topics, findings)
            is_update = pipeline.text("output_mode") == "update"
            check_options(sink, WRITE if is_update else STREAM_WRITE, findings)
            _updates(pipeline, sink, findings)
        _late_path(pipeline, findings)
        check_settings(pipeline, findings)


def _with_formats(pipeline: Section) -> list[Section]:
    """What reads and what writes."""
    sink = pipeline.values.get("sink")
    read = [*pipeline.sections("sources"), *pipeline.sections("statics")]
    return [*read, sink] if isinstance(sink, Section) else read


def _near(section: Section, findings: Diagnostics) -> None:
    """Warn of a format that is nearly the name of one: there may be one of that name all the same,
    which Spark alone knows."""
    known, kind = (*KNOWN_FORMATS, *SPARKS_FORMATS), section.text("format")
    meant = nearest(kind, known) if kind and kind not in known else None
    if meant is not None and kind.lower() != meant.lower():
        message = f"{kind} is not a known format, and Spark may have none of that name"
        findings.warning(section.line_of("Format"), "Format", message, f"did you mean {meant}?")


def _updates(pipeline: Section, sink: Section, findings: Diagnostics) -> None:
    if pipeline.text("output_mode") != "update":
        return
    line = pipeline.line_of("OutputMode")
    if sink.text("format") in FILES:
        findings.error(
            line,
            "OutputMode",
            "files cannot be updated",
            "write append, with a Watermark in the Source, or give the Sink a Topic",
        )
    elif "Conflate" in pipeline.lines:
        findings.error(
            line,
            "OutputMode",
            "Conflate hands a window on when it can change no more, so nothing is updated",
            "write append, with a Watermark in the Source if the SQL aggregates",
        )


def _checkpoint(pipeline: Section, known: dict[str, int], findings: Diagnostics) -> None:
    path, line = pipeline.text("checkpoint"), pipeline.line_of("Checkpoint")
    if path and path in known:
        findings.error(
            line,
            "Checkpoint",
            f"{path} is that of the pipeline in {at(known[path], line)}",
            "give each pipeline one of its own",
        )
    if path:
        known.setdefault(path, line)


def _late_path(pipeline: Section, findings: Diagnostics) -> None:
    """Late rows among others are read as what they are not: as new ones, or as written ones."""
    conflate, sink = pipeline.values.get("conflate"), pipeline.values.get("sink")
    if not isinstance(conflate, Section) or "LatePath" not in conflate.lines:
        return
    others = [*pipeline.sections("sources"), *pipeline.sections("statics")]
    if isinstance(sink, Section):
        others.append(sink)
    late = conflate.text("late_path").rstrip("/")
    for other in others:
        if late and other.text("path").rstrip("/") == late:
            message = f"{late} is the Path of the {other.element.name}, too"
            line, instead = conflate.line_of("LatePath"), "give late rows a directory of their own"
            findings.error(line, "LatePath", message, instead)


def _source(source: Section, topics: Mapping[str, Section], findings: Diagnostics) -> None:
    topic = _read(source, topics, findings)
    if topic is None:
        return
    if topic.element.name == "ConflatedTopic":
        findings.error(
            source.line_of("Topic"),
            "Topic",
            f"{source.text('topic')} is a conflated topic, which has no log to read",
            f"read {topic.text('underlying')}, and add a <Conflate>",
        )
    elif topic.text("durability") == "transient":
        findings.error(
            source.line_of("Topic"),
            "Topic",
            f"{source.text('topic')} is transient, so it has no log to read",
            "make it persistent",
        )


def _static(static: Section, topics: Mapping[str, Section], findings: Diagnostics) -> None:
    _read(static, topics, findings)
    if static.text("format") == "rate":
        message, instead = "rate has no end, so it is no table", "make it a Source"
        findings.error(static.line_of("Format"), "Format", message, instead)
    given = {plain(option.text("name")) for option in static.sections("options")}
    use = LOG if plain("startingBookmark") in given else RECORDS
    check_options(static, use, findings)


def _read(section: Section, topics: Mapping[str, Section], findings: Diagnostics) -> Section | None:
    """Check where rows are read from; the topic, where it is one."""
    kind, name = section.text("format"), section.element.name
    if kind in FILES and "Path" not in section.lines:
        findings.error(section.line, name, f"{kind} needs a Path", "add <Path>…</Path>")
    if kind == "sow" and "Topic" not in section.lines:
        findings.error(section.line, name, "sow needs a Topic", "add <Topic>…</Topic>")
    for element in USELESS.get(kind, ("Topic",)):
        if kind and element in section.lines:
            why = WHERE.get(kind, "a Topic is read with the Format sow")
            message = f"{kind} makes nothing of it: {why}"
            findings.error(section.line_of(element), element, message, "remove it")
    return _topic(section, topics, findings) if kind == "sow" else None


def _time(pipeline: Section, source: Section, findings: Diagnostics) -> None:
    """Whether the rows have a time where one is needed; of formats that are Spark's alone it is
    not known, either."""
    kind = source.text("format")
    if not kind or kind in TIME_COLUMNS or "TimeColumn" in source.lines:
        return
    for needs, section in (("Conflate", pipeline), ("Watermark", source)):
        if needs in section.lines:
            rows = "files do" if kind in FILES else f"{kind} does"
            findings.error(
                source.line,
                "Source",
                f"{needs} needs the time of the rows, and {rows} not name its column",
                "add <TimeColumn>…</TimeColumn>",
            )


def _sink(sink: Section, topics: Mapping[str, Section], findings: Diagnostics) -> None:
    to_topic = "Topic" in sink.lines
    if to_topic == ("Format" in sink.lines):
        message = "needs a Topic or a Format, one of the two"
        instead = "remove one of them" if to_topic else "add <Topic>…</Topic>"
        findings.error(sink.line, "Sink", message, instead)
    elif sink.text("format") in FILES and "Path" not in sink.lines:
        findings.error(sink.line, "Sink", "files need a Path", "add <Path>…</Path>")
    elif sink.text("format") in READ_ONLY:
        kind = sink.text("format")
        findings.error(sink.line_of("Format"), "Format", f"{kind} is no Sink", READ_ONLY[kind])
    elif to_topic:
        if "Path" in sink.lines:
            message = "a Topic makes nothing of it"
            findings.error(sink.line_of("Path"), "Path", message, "remove it, or the Topic")
        topic = _topic(sink, topics, findings)
        if topic is not None and topic.element.name == "ConflatedTopic":
            name, underlying = sink.text("topic"), topic.text("underlying")
            message = f"{name} is a conflated topic, a copy of {underlying}"
            findings.error(
                sink.line_of("Topic"), "Topic", message, f"write to {underlying}, or another topic"
            )


def _topic(
    section: Section, topics: Mapping[str, Section], findings: Diagnostics
) -> Section | None:
    name = section.text("topic")
    found = topics.get(name) or definition_of(name, topics.values())
    if found is None and name:
        meant = nearest(name, topics)
        findings.error(
            section.line_of("Topic"),
            "Topic",
            f"no topic is called {name!r}",
            f"did you mean {meant!r}?" if meant else "define it in <SOW>",
        )
    return found
