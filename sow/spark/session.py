"""A Spark session: the one there is, or a new one that is quiet, small and uses this Python.

The most common first failures of PySpark are met here: no Java, workers that run another Python
than the driver's, a driver that listens where it cannot be reached. Whatever is asked for in
`conf` goes first.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sow.errors import ClientError
from sow.spark.cache import private_directory

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
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
    """The active Spark session, or a new one.

    `master` is any Spark master, or a Spark Connect address (``sc://host``); by default what
    SPARK_REMOTE or spark-submit say, else all cores of this machine. `conf` are settings of
    Spark's. Raises ClientError where PySpark or Java are missing.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ClientError(f"{error}: install Spark with pip install 'sow[spark]'") from None
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    master = master or os.environ.get("SPARK_REMOTE")
    is_remote = master is not None and master.startswith("sc://")
    if not is_remote:
        from sow.spark.java import ensure_java

        ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app)
    if master is not None and is_remote:
        builder = builder.remote(master)
    elif master is not None:
        builder = builder.master(master)
    elif "spark.master" not in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        builder = builder.master("local[*]")
    is_local = master is None or master.startswith("local")
    settings = {**(CONNECTED if is_remote else _settings(master)), **(conf or {})}
    if not is_remote:
        options = settings.get(JAVA_OPTIONS, "")
        settings[JAVA_OPTIONS] = (
            f"{options} -Dlog4j2.configurationFile={_logging().as_uri()}".strip()
        )
        if is_local:
            # Spark looks up the host's name, and warns of what it finds, unless it is told.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def has_session() -> bool:
    """Whether a Spark session is there already."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return False
    return SparkSession.getActiveSession() is not None


def _logging() -> Path:
    """A file that tells Spark's own log to be quiet from the first line on."""
    file = private_directory() / "log4j2.properties"
    if not file.exists() or file.read_text() != LOGGING:
        file.write_text(LOGGING)
    return file


CONNECTED = {"spark.sql.session.timeZone": "UTC"}


def _settings(master: str | None) -> dict[str, str]:
    settings = {
        **CONNECTED,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        "spark.driver.memory": "1g",
    }
    if master is None or master.startswith("local"):
        cores = _cores(master)
        settings |= {
            "spark.sql.shuffle.partitions": str(cores),
            "spark.default.parallelism": str(cores),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
        }
    return settings


def _cores(master: str | None) -> int:
    inside = (master or "local[*]").partition("[")[2].rstrip("]").split(",")[0]
    return int(inside) if inside.isdigit() else os.cpu_count() or 1
