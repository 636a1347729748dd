"""The options of `format("sow")`: which there are, and in which use each means something.

Spark's data source reads them (`sow.spark.options`), and the rules of `<Pipelines>` know them too,
so that a slip is found before Spark is started. What a value may be is the data source's business.
They stand by themselves: each of Spark's processes imports them, and none needs the configuration.
"""

from typing import Literal

Use = Literal[
    "a read of records", "a read of the log", "a stream read", "a batch write", "a stream write"
]
RECORDS: Use = "a read of records"
LOG: Use = "a read of the log"
STREAM: Use = "a stream read"
WRITE: Use = "a batch write"
STREAM_WRITE: Use = "a stream write"
READS = (RECORDS, LOG, STREAM)
WRITES = (WRITE, STREAM_WRITE)
USES: dict[str, tuple[Use, ...]] = {
    "url": READS + WRITES,
    "topic": READS + WRITES,
    "token": READS + WRITES,
    "ca": READS + WRITES,
    "filter": READS,
    "columns": READS,
    "asOf": (RECORDS,),
    "projection": (RECORDS,),
    "grouping": (RECORDS,),
    "inferSchema": READS,
    "partitions": READS,
    "pushdown": (RECORDS, LOG),
    "startingBookmark": (LOG, STREAM),
    "endingBookmark": (LOG,),
    "maxRowsPerTrigger": (STREAM,),
    "readMode": (STREAM,),
    "failOnDataLoss": (LOG, STREAM),
    "consumer": (STREAM,),
    "closesWithin": (STREAM,),
    "mode": WRITES,
    "writer": WRITES,
    "allowEmpty": (WRITE,),
    "epoch": (WRITE,),
    "rerun": WRITES,
    "batchRows": WRITES,
    "deadLetterPath": WRITES,
    "keyColumn": WRITES,
    "opColumn": WRITES,
    "retryTimeout": READS + WRITES,
}
"""Every option, and where it means something."""
INSTEAD = {
    "endingBookmark": "a read of the log has it, with startingBookmark",
    "failOnDataLoss": "a read of the log has it, with startingBookmark",
    "asOf": "it is of one moment; leave out startingBookmark",
    "projection": "rows of groups are of one moment; leave out startingBookmark, or group in Spark",
    "grouping": "rows of groups are of one moment; leave out startingBookmark, or group in Spark",
    "allowEmpty": "a batch write has it, with mode replace",
    "epoch": "a stream counts its own batches",
}


def plain(name: str) -> str:
    """A name as it is compared: `asOf`, `as_of` and `ASOF` are one."""
    return name.lower().replace("_", "")


NAMES = {plain(name): name for name in USES}
"""The options by their plain names."""


def misuse(name: str, use: Use) -> str:
    """Why an option means nothing in what it is used for, and where it does; empty if it means
    something."""
    if use in USES[name]:
        return ""
    instead = INSTEAD.get(name) or f"it belongs to {' or '.join(USES[name])}"
    return f"the option {name} means nothing in {use}: {instead}"
