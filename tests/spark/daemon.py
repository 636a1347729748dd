"""The daemon that forks Spark's Pythons in the tests: it has read what they need before it forks.

Spark's own reads nothing, since what is read may start threads, which a fork does not have. What is
read here starts none that the tests need, and is two thirds of what a Python of theirs costs.
"""

import gc
import sys
from importlib import import_module

from pyspark import daemon

READ = (
    "pandas",
    "pyarrow.compute",
    "pyspark.sql.pandas.types",
    "pyspark.worker",
    "sow.spark.source",
)


def main():
    gc.disable()
    for name in (*READ, sys.argv[1]):
        import_module(name)
    gc.freeze()
    gc.enable()
    daemon.manager()


if __name__ == "__main__":
    main()
