"""Spark settings that exist before a session is created.

`spark-submit` has started the Java already, with its command line and `spark-defaults.conf`; a
shell may set PYSPARK_SUBMIT_ARGS; otherwise there is the file of defaults. A session must not
override these settings.
"""

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

GATEWAY = "PYSPARK_GATEWAY_PORT"
FLAGS = {
    "--master": "spark.master",
    "--name": "spark.app.name",
    "--driver-memory": "spark.driver.memory",
    "--driver-java-options": "spark.driver.extraJavaOptions",
    "--deploy-mode": "spark.submit.deployMode",
}
"""Options of spark-submit for settings that a session might set too."""


def is_submitted(environment: Mapping[str, str]) -> bool:
    """Whether spark-submit has started this process."""
    return GATEWAY in environment


def submitted() -> dict[str, str]:
    """The settings of a process that spark-submit has started."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # otherwise only settings of Python are visible
    return dict(SparkConf().getAll())


def by_arguments(words: Sequence[str]) -> dict[str, str]:
    """The settings in arguments for spark-submit; other arguments are skipped."""
    found: dict[str, str] = {}
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if not equals:
            value = words[at + 1] if at + 1 < len(words) else ""
        if flag in FLAGS:
            found[FLAGS[flag]] = value
        elif flag in ("--conf", "-c") and "=" in value:
            name, _, setting = value.partition("=")
            found[name.strip()] = setting
    return found


def by_defaults(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings in Spark's own file of defaults."""
    home = environment.get("SPARK_HOME")
    directory = environment.get("SPARK_CONF_DIR") or (os.path.join(home, "conf") if home else None)
    if directory is None:
        return {}
    try:
        lines = (Path(directory) / "spark-defaults.conf").read_text().splitlines()
    except OSError:
        return {}
    return dict(_setting(line) for line in lines if line.strip() and line.strip()[0] not in "#!")


def _setting(line: str) -> tuple[str, str]:
    """A line of a properties file: a name and a value, separated by a blank, `=` or `:`."""
    words = line.strip().replace("=", " ", 1).split(None, 1)
    return words[0].rstrip(":"), words[1].strip() if len(words) > 1 else ""


def existing_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """All existing settings."""
    if is_submitted(environment):
        return submitted()
    words = shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    return {**by_defaults(environment), **by_arguments(words)}
