"""The rules of what a pipeline's SQL reads: its sources and static tables, each a view with a name.

Spark compares names without case, so `Orders` and `orders` are one. What the SQL makes of the views
is Spark's business.
"""

from sow.config.binder import Section
from sow.config.diagnostics import Diagnostics, at
from sow.config.sql import problem
from sow.core.pipelines import SOURCE_VIEW


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
            pipeline.line_of("Conflate"),
            "Conflate",
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
        findings.error(pipeline.line_of("SQL"), "SQL", f"is no query: {wrong}", instead)
