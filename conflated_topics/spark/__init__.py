"""Conflation and as-of joins on Spark, of batches and of streams.

`conflate` cuts windows as a conflated topic does (`conflated_topics.spark.conflation`), `asof_join`
joins each row with the latest row of another table (`conflated_topics.spark.asof`). The core does
the work; these modules bring Spark's rows to it. They need PySpark when called, not when imported.
"""

from conflated_topics.spark.asof import asof_join
from conflated_topics.spark.conflation import conflate

__all__ = ["asof_join", "conflate"]
