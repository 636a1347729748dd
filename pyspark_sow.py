"""What Spark imports to find `format("sow")` by itself.

When a data source is first asked for, Spark imports every installed module whose name begins with
``pyspark_`` and takes its `DefaultSource`. Nothing else is here, so that it stays quick to import.
"""

from sow.spark.source import SowDataSource as DefaultSource

__all__ = ["DefaultSource"]
