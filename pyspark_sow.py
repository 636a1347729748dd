"""The module through which Spark finds `format("sow")` by itself.

For the first data source of a session, Spark imports every installed module whose name begins with
``pyspark_`` and registers its `DefaultSource`. Nothing else is here, so that the import is fast.
"""

from sow.spark.source import SowDataSource as DefaultSource

__all__ = ["DefaultSource"]
