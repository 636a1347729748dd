"""Spark's own verdict on the spelling of queries, from its parser alone: no session, no data.

Whether the columns and functions are there is seen only when a pipeline is run.
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
    """Spark's Java without a session; raises ClientError where PySpark or Java are missing."""
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
    """What is wrong with each query, in one sentence; empty for one that can be parsed."""
    parser = jvm.org.apache.spark.sql.execution.SparkSqlParser()
    found = []
    for query in queries:
        try:
            parser.parsePlan(query)
            found.append("")
        except Exception as error:
            # With a session PySpark has put an error of its own in the place of Java's.
            java = getattr(error, "java_exception", None)
            said = str(error) if java is None else str(java.getMessage())
            lines = said.strip().splitlines()
            found.append(" ".join(line.strip() for line in lines[:2] if line.strip()))
    return found
