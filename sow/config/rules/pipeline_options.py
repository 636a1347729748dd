"""The rules of `<Option>` and `<Setting>` of pipelines: names that have an effect where they are.

Options of topics are the server's own, so unknown ones are reported; those of other formats are
Spark's, which reports them itself. Of settings, only misplaced ones are reported.
"""

from collections.abc import Callable, Iterable, Mapping

from sow.config.binder import Section
from sow.config.diagnostics import Diagnostics, at
from sow.core.source_options import NAMES, READS, USES, Use, misuse, plain
from sow.core.suggest import nearest

Names = Mapping[str, str]
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
"""How the names of settings begin; all others Spark passes over."""
OF_THE_DRIVER = ("spark.driver.", "spark.executor.", "spark.jars")
"""Settings that take effect only when the JVM starts."""


def check_options(section: Section, use: Use, findings: Diagnostics) -> None:
    """Check the options of what reads or writes: each once, and of a topic each that there is."""
    options = section.sections("options")
    of_topic = section.text("format") == "sow" or "Format" not in section.lines
    _once(options, "Option", plain if of_topic else str.lower, findings)
    if of_topic:
        for option in options:
            _option(option, use, findings)


def _option(option: Section, use: Use, findings: Diagnostics) -> None:
    name, set_elsewhere = option.text("name"), SET_FOR_SOURCES if use in READS else SET_FOR_SINKS
    known = NAMES.get(plain(name))
    if known is None:
        meant = nearest(name, USES)
        message = f"a topic has no option {name!r}"
        instead = f"did you mean {meant!r}?" if meant else f"there are {', '.join(USES)}"
        findings.error(option.line, "Option", message, instead)
    elif known in set_elsewhere:
        findings.error(option.line, "Option", f"{known} {set_elsewhere[known]}", "remove it")
    elif known == "mode" and option.text("value") == "replace":
        message = "mode replace would remove with each batch what those before it wrote"
        findings.error(option.line, "Option", message, "delete by rows whose op is delete")
    elif problem := misuse(known, use):
        message, _, instead = problem.partition(": ")
        findings.error(option.line, "Option", message, instead)


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
