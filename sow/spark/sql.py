"""Checks the syntax of queries with Spark's own parser: no session, no data.

Whether columns and functions exist shows only when a pipeline runs.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sow.core.origin_parsing import LOOPBACK
from sow.errors import ClientError
from sow.spark.java import ensure_java
from sow.spark.session import JAVA_OPTIONS, quiet_java


@contextmanager
def spark_java() -> Iterator[Any]:
    """Spark's Java without a session; raises ClientError if PySpark or Java are missing."""
    try:
        from pyspark import SparkConf
        from pyspark.java_gateway import launch_gateway
    except ImportError as error:
        raise ClientError(f"{error}: install Spark with pip install 'sow[spark]'") from None
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
