"""Conflation and as-of joins on Spark, of batches and of streams.

`conflate` cuts windows as a conflated topic does (`conflated_topics.spark.conflation`), `asof_join`
joins each row with what another table said last (`conflated_topics.spark.asof`). Both are the work
of the core; here are only the ways by which Spark brings rows to it. PySpark is needed when one of
them is called, not when this is imported.
"""

from conflated_topics.spark.asof import asof_join
from conflated_topics.spark.conflation import conflate

__all__ = ["asof_join", "conflate"]
