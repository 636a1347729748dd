"""The rules of `<Pipelines>`: names, sources and sinks, views and their SQL, options, settings."""

from collections.abc import Callable, Iterable, Mapping

from conflated_topics.user_texts import nearest
from sow.config.binder import Section
from sow.config.diagnostics import Diagnostics, MistakeError, at
from sow.config.elements.pipeline import SHARED_PLACE
from sow.config.rules.spark_option_rules import kafka_problem, value_problem
from sow.config.rules.topic_rules import definition_of, is_many
from sow.config.sql import problem
from sow.core.pipelines import (
    FILES,
    KNOWN_FORMATS,
    LOG,
    NAMES,
    READS,
    RECORDS,
    SOURCE_VIEW,
    SPARKS_FORMATS,
    STREAM,
    STREAM_WRITE,
    TIME_COLUMNS,
    USES,
    WRITE,
    Use,
    bookmark_problem,
    called_here,
    check_together,
    misuse,
    option_value,
    plain,
)
from sow.errors import ClientError
from sow.expressions import compile_filter

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
            _changes(pipeline, source, topics, findings)
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
    """The sources and the sinks."""
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
        findings.warning(*section.where("Format"), message, f"did you mean {meant}?")


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
            *source.where("Topic"),
            f"{source.text('topic')} is a conflated topic, which has no log to read",
            f"read {topic.text('underlying')}, and add a <Conflate>",
        )
    elif topic.text("durability") == "transient":
        findings.error(
            *source.where("Topic"),
            f"{source.text('topic')} is transient, so it has no log to read",
            "make it persistent",
        )


def _static(static: Section, topics: Mapping[str, Section], findings: Diagnostics) -> None:
    _read(static, topics, findings)
    if static.text("format") == "rate":
        message, instead = "rate has no end, so it is no table", "make it a Source"
        findings.error(*static.where("Format"), message, instead)
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
            findings.error(*section.where(element), message, "remove it")
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


def _changes(
    pipeline: Section, source: Section, topics: Mapping[str, Section], findings: Diagnostics
) -> None:
    """What rows of changes do not go with."""
    cdc = [
        option
        for option in source.sections("options")
        if plain(option.text("name")) == "changeformat" and option.text("value") == "cdc"
    ]
    if not cdc or source.text("format") != "sow":
        return
    topic = topics.get(source.text("topic"))
    if topic is not None and is_many(topic):
        findings.error(
            *source.where("Topic"),
            f"{source.text('topic')} is a pattern, and changeFormat cdc is for the changes of one "
            "topic",
            "name one of its topics, each in a pipeline of its own, or leave changeFormat out",
        )
    if "Conflate" in pipeline.lines:
        findings.error(
            *pipeline.where("Conflate"),
            "an update is two rows with changeFormat cdc, and Conflate folds rows into one",
            f"leave changeFormat out of the Source in {at(cdc[0].line, pipeline.line)}",
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
        findings.error(*sink.where("Format"), f"{kind} is no Sink", READ_ONLY[kind])
    elif to_topic:
        if "Path" in sink.lines:
            message = "a Topic makes nothing of it"
            findings.error(*sink.where("Path"), message, "remove it, or the Topic")
        topic = _topic(sink, topics, findings)
        if topic is not None and topic.element.name == "ConflatedTopic":
            name, underlying = sink.text("topic"), topic.text("underlying")
            message = f"{name} is a conflated topic, a copy of {underlying}"
            findings.error(
                *sink.where("Topic"), message, f"write to {underlying}, or another topic"
            )


def _topic(
    section: Section, topics: Mapping[str, Section], findings: Diagnostics
) -> Section | None:
    name = section.text("topic")
    found = topics.get(name) or definition_of(name, topics.values())
    if found is None and name:
        meant = nearest(name, topics)
        findings.error(
            *section.where("Topic"),
            f"no topic is called {name!r}",
            f"did you mean {meant!r}?" if meant else "define it in <SOW>",
        )
    return found


def check_views(pipeline: Section, findings: Diagnostics) -> None:
    """Check the names of views, and that there is SQL for them where it takes any."""
    sources, statics = pipeline.sections("sources"), pipeline.sections("statics")
    views = _named([*sources, *statics], findings)
    if "SQL" in pipeline.lines:
        _sql(pipeline, views, findings)
    elif len(sources) > 1:
        message = "several sources become one stream by SQL, and there is none"
        instead = "add <SQL>…</SQL>, or give each source a pipeline of its own"
        findings.error(sources[1].line, "Source", message, instead)
    elif statics:
        message = "a static table is read by SQL, and there is none"
        findings.error(statics[0].line, "Static", message, "add <SQL>…</SQL>, or remove it")
    if len(sources) > 1 and "Conflate" in pipeline.lines:
        findings.error(
            *pipeline.where("Conflate"),
            "rows are late or not by the newest row of all, so of several sources one that is "
            "read ahead would leave out rows of the others",
            "write the sources to one topic by this pipeline, and conflate that topic by another",
        )


def _named(sections: list[Section], findings: Diagnostics) -> list[str]:
    """The names of the views, which must be distinct."""
    lines: dict[str, int] = {}
    views = []
    for section in sections:
        is_unnamed = section.element.name == "Source" and "Name" not in section.lines
        name = SOURCE_VIEW if is_unnamed else section.text("name")
        if not name:
            continue  # already reported
        views.append(name)
        if name.lower() in lines:
            kind, line = section.element.name, lines[name.lower()]
            wrong = f"is the view {name}, as the element in {at(line, section.line)} is already"
            findings.error(
                section.line, kind, wrong, f'give it a name of its own: <{kind} name="…">'
            )
        lines.setdefault(name.lower(), section.line)
    return views


def _sql(pipeline: Section, views: list[str], findings: Diagnostics) -> None:
    if wrong := problem(pipeline.text("sql"), views):
        view = views[0] if views else SOURCE_VIEW
        over = f"the view {view}" if len(views) < 2 else f"the views {', '.join(views)}"
        instead = f"write a query over {over}, such as SELECT * FROM {view}"
        findings.error(*pipeline.where("SQL"), f"is no query: {wrong}", instead)


# Options of topics are the server's own, so unknown ones are reported; those of other formats are
# Spark's, which reports them itself. Of settings, only misplaced ones are reported.

SET_FOR_SOURCES: Names = {"topic": "is set by the element Topic"}
SET_FOR_SINKS: Names = {
    **SET_FOR_SOURCES,
    "writer": "is the pipeline's own: what it has written is known by it",
    "epoch": "is the number of each batch",
    "allowEmpty": "belongs to mode replace, and a pipeline writes batch by batch",
    "rerun": "has nothing to pass over: a pipeline counts its batches itself",
}
"""Options that a pipeline sets itself, and what they are there."""
SET_FOR_SPARK: Names = dict.fromkeys(
    ("spark.master", "spark.remote"), "is set by the element Master"
)
"""The same of settings."""
SPARKS = "spark."
"""Prefixes of the names of settings; Spark ignores all others."""
OF_THE_DRIVER = ("spark.driver.", "spark.executor.", "spark.jars")
"""Settings that take effect only when the JVM starts."""


def check_options(section: Section, use: Use, findings: Diagnostics) -> None:
    """Check the options of what reads or writes: each once, and of a topic each that there is."""
    options = section.sections("options")
    of_topic = section.text("format") == "sow" or "Format" not in section.lines
    _once(options, "Option", plain if of_topic else str.lower, findings)
    if not of_topic:
        for option in options:
            if wrong := value_problem(section.text("format"), option):
                _wrong(option, wrong, findings)
        if section.text("format") == "kafka" and (wrong := kafka_problem(section, use in READS)):
            _wrong(section, wrong, findings, section.element.name)
        return
    found = [(option, _problem(option, use)) for option in options]
    for option, wrong in found:
        if wrong:
            _wrong(option, wrong, findings)
    if not any(wrong for _, wrong in found):
        values = {NAMES[plain(one.text("name"))]: one.text("value") for one in options}
        try:
            check_together(values, use)
        except ClientError as error:
            meant = [one for one in options if NAMES[plain(one.text("name"))] in error.detail]
            _wrong((meant or options)[0], error.detail, findings)


def _wrong(section: Section, text: str, findings: Diagnostics, element: str = "Option") -> None:
    """Report an option by a sentence of two parts."""
    message, _, instead = text.partition("; " if "; " in text else ": ")
    findings.error(section.line, element, message, instead)


def _problem(option: Section, use: Use) -> str:
    """Why a topic does not take an option, and what to write instead; empty if it does."""
    name, set_elsewhere = option.text("name"), SET_FOR_SOURCES if use in READS else SET_FOR_SINKS
    known = NAMES.get(plain(name))
    if known is None:
        meant = nearest(called_here(name), USES)
        instead = f"did you mean {meant!r}?" if meant else f"there are {', '.join(USES)}"
        return f"a topic has no option {name!r}; {instead}"
    if known in set_elsewhere:
        return f"{known} {set_elsewhere[known]}; remove it"
    if known == "mode" and option.text("value") == "replace":
        return (
            "mode replace would remove with each batch what those before it wrote; delete by rows "
            "whose op is delete"
        )
    if "value" not in option.values:
        return ""  # reported already
    return misuse(known, use) or _value_problem(known, option.text("value"), use)


def _value_problem(name: str, text: str, use: Use) -> str:
    """Why an option of a topic cannot have this value; empty if it may."""
    try:
        option_value(name, text)
        if name == "filter" and text.strip():
            compile_filter(text)
        if name == "deadLetterPath":
            SHARED_PLACE.read(text)
    except MistakeError as mistake:
        return f"{name}: {mistake.message}; {mistake.instead}"
    except ClientError as error:
        return error.detail if name in error.detail else f"{name}: {error.detail}"
    words = {
        "startingBookmark": ("earliest", "latest", *(["snapshot"] if use == STREAM else [])),
        "endingBookmark": ("latest",),
        "asOf": (),
    }
    wrong = bookmark_problem(text, *words[name]) if name in words else ""
    return f"{name}: {wrong}" if wrong else ""


def check_settings(pipeline: Section, findings: Diagnostics) -> None:
    """Check the settings of Spark's: each once, and where it has an effect."""
    settings = pipeline.sections("settings")
    _once(settings, "Setting", str, findings)
    is_running = pipeline.text("master").startswith("sc://")
    for setting in settings:
        name = setting.text("name")
        if not name.startswith(SPARKS):
            message = f"Spark passes over {name}: its settings begin with {SPARKS}"
            findings.error(setting.line, "Setting", message, f"did you mean {SPARKS}{name}?")
        elif name in SET_FOR_SPARK:
            findings.error(setting.line, "Setting", f"{name} {SET_FOR_SPARK[name]}", "remove it")
        elif is_running and name.startswith(OF_THE_DRIVER):
            findings.error(
                setting.line,
                "Setting",
                f"{name} has no effect on a running Spark, such as that of an sc:// Master",
                "set it where the Connect server is started: start-connect-server.sh --conf "
                f"{name}=…",
            )


def _once(
    given: Iterable[Section], element: str, same: Callable[[str], str], findings: Diagnostics
) -> None:
    """Check that no name is given twice; those that are the `same` count as one."""
    lines: dict[str, int] = {}
    for one in given:
        name = one.text("name")
        if same(name) in lines:
            message = f"{name} is given in {at(lines[same(name)], one.line)} already"
            findings.error(one.line, element, message, "remove one of them")
        lines.setdefault(same(name), one.line)
