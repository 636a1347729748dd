"""A Spark session: the active one, or a new one that is quiet, small and uses this Python.

It prevents the most common first failures of PySpark: no Java, workers that run another Python than
the driver's, a driver that listens on an unreachable address. All settings here are defaults, and
never override those that exist before a session: `spark-submit` has started the Java already, with
its command line and `spark-defaults.conf`; a shell may set PYSPARK_SUBMIT_ARGS; otherwise there is
the file of defaults.

Without a session Spark's Java also checks the syntax of queries; whether their columns and
functions exist shows only when a pipeline runs.

`sow.spark.java` is a program, too, so it is imported where it is used: importing the package must
not import it.
"""

import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from logging import CRITICAL
from pathlib import Path
from typing import Any

from sow.core.addresses import LOOPBACK
from sow.errors import ClientError

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


JAVA_OPTIONS = "spark.driver.extraJavaOptions"
HOST = "spark.driver.host"
MASTER = "spark.master"
LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{2}
"""


def session(
    app: str = "sow", master: str | None = None, conf: Mapping[str, str] | None = None
) -> Any:
    """The active Spark session, or a new one. A thread begins without an active session, and Spark
    finds no data source of Python's there: this makes that of the process active in it.

    `master` is any Spark master, or a Spark Connect address (``sc://host``); the default comes from
    SPARK_REMOTE or Spark's own settings, else it is all cores of this machine. `conf` are settings
    of Spark's. Arguments of spark-submit override everything here. Raises ClientError if PySpark or
    Java are missing.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ClientError(f"{error}: install Spark with pip install 'sow[spark]'") from None
    existing_session = _existing_session(SparkSession)
    if existing_session is not None:
        return existing_session
    by_submit = is_submitted(os.environ)
    builder = SparkSession.builder
    if not by_submit:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        master = master or os.environ.get("SPARK_REMOTE")
        if master is not None and master.startswith("sc://"):
            return _configured(builder.appName(app).remote(master), {**EXACT, **(conf or {})})
        from sow.spark.java import ensure_java

        ensure_java()
    existing = existing_settings(os.environ)
    settings = settings_for(app, master, conf or {}, existing, by_submit)
    if not by_submit:
        java = settings.get(JAVA_OPTIONS, existing.get(JAVA_OPTIONS, ""))
        settings[JAVA_OPTIONS] = f"{java} {quiet_java()}".strip()
        if settings.get(HOST) == LOOPBACK:
            # Without this Spark resolves the host's name, and warns about the result.
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    return _configured(builder, settings)


def _configured(builder: Any, settings: Mapping[str, str]) -> Any:
    from pyspark.logger import PySparkLogger

    for name in ("SQL", "DataFrame"):  # which write down what is raised anyway, as JSON
        PySparkLogger.getLogger(f"{name}QueryContextLogger").setLevel(CRITICAL)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def settings_for(
    app: str,
    master: str | None,
    conf: Mapping[str, str],
    existing: Mapping[str, str],
    by_submit: bool,
) -> dict[str, str]:
    """The settings of a new session beside the `existing` ones.

    Ours are defaults, and never override others. Arguments of the caller override a file, but not
    spark-submit, whose Java is running already, with its own log and addresses.
    """
    requested = {**({} if master is None else {MASTER: master}), **conf}
    if by_submit:
        requested = {name: value for name, value in requested.items() if name not in existing}
    ours = {**EXACT, **ARROW_SETTINGS, "spark.app.name": app}
    if not by_submit:
        where = {**existing, **requested}.get(MASTER, "local[*]")
        ours |= {MASTER: where, **QUIET, **_on(where)}
    return {name: value for name, value in ours.items() if name not in existing} | requested


def has_session() -> bool:
    """Whether a Spark session exists already."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return False
    return _existing_session(SparkSession) is not None


def _existing_session(kind: Any) -> Any:
    """The session that is active in this thread, or else that of the process, which becomes it;
    None if there is none."""
    active = kind.getActiveSession()
    found = getattr(kind, "_instantiatedSession", None)
    if active is not None or found is None or found._sc._jsc is None:
        return active
    found._jvm.SparkSession.setActiveSession(found._jsparkSession)
    return found


def quiet_java() -> str:
    """The option of Java's that makes Spark's log quiet from its first line on."""
    return f"-Dlog4j2.configurationFile={_logging().as_uri()}"


def _logging() -> Path:
    """A file that makes Spark's own log quiet from the first line on."""
    from sow.spark.java import private_directory

    file = private_directory() / "log4j2.properties"
    if not file.exists() or file.read_text() != LOGGING:
        file.write_text(LOGGING)
    return file


EXACT = {"spark.sql.session.timeZone": "UTC"}
ARROW_SETTINGS = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
}
QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "1g",
}


def _on(master: str) -> dict[str, str]:
    """Settings for this machine only: 200 partitions are for clusters, whose executors have to
    reach the driver."""
    if not master.startswith("local") or master.startswith("local-cluster"):
        return {}
    cores = str(_cores(master))
    return {
        "spark.sql.shuffle.partitions": cores,
        "spark.default.parallelism": cores,
        "spark.driver.bindAddress": LOOPBACK,
        HOST: LOOPBACK,
    }


def _cores(master: str) -> int:
    inside = master.partition("[")[2].rstrip("]").split(",")[0]
    return int(inside) if inside.isdigit() else os.cpu_count() or 1


@contextmanager
def spark_java() -> Iterator[Any]:
    """Spark's Java without a session; raises ClientError if PySpark or Java are missing."""
    try:
        from pyspark import SparkConf
        from pyspark.java_gateway import launch_gateway
    except ImportError as error:
        raise ClientError(f"{error}: install Spark with pip install 'sow[spark]'") from None
    from sow.spark.java import ensure_java

    ensure_java()
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    conf = SparkConf(loadDefaults=False).set(JAVA_OPTIONS, quiet_java())
    gateway: Any = launch_gateway(conf)  # type: ignore[no-untyped-call]
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


def problems(jvm: Any, queries: Iterable[str]) -> list[str]:
    """The error of each query, in one sentence; empty for one that parses."""
    parser = jvm.org.apache.spark.sql.execution.SparkSqlParser()
    found = []
    for query in queries:
        try:
            parser.parsePlan(query)
            found.append("")
        except Exception as error:
            # With a session PySpark has wrapped Java's error in one of its own.
            java = getattr(error, "java_exception", None)
            message = str(error) if java is None else str(java.getMessage())
            lines = message.strip().splitlines()
            found.append(" ".join(line.strip() for line in lines[:2] if line.strip()))
    return found
