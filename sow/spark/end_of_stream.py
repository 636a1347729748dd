"""The end of a finite stream: shows a stream of files that a run has read all of them.

A streaming query does not know which of its batches is the last. So a run over files is two queries
on one checkpoint: the first reads the files; the second has no new files, but its data source
`sow_ending` has one row that makes `conflate` emit all open windows. Both consist of ordinary
batches: an interrupted one runs again unchanged.
"""

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow
from pyspark.sql.types import StructType

SCHEMA = pa.schema([("ending", pa.int64())])


class EndingSource(DataSource):
    """`format("sow_ending")`: with the option `ends` true one row per run, else none ever."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._ends = options.get("ends") == "true"

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "sow_ending"

    def schema(self) -> str:
        """The number of the ending."""
        return "ending long"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The only reader."""
        return _EndingReader(self._ends)


class _EndingReader(DataSourceStreamReader, AvailableNow):
    """Offsets count endings."""

    def __init__(self, ends: bool) -> None:
        self._ends = ends
        self._last: int | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"ending": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """All ranges follow from the option."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        if self._last is None:
            self._last = start["ending"] + self._ends
        return {"ending": self._last}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(n) for n in range(start["ending"] + 1, end["ending"] + 1)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield pa.RecordBatch.from_pydict({"ending": [partition.value]}, schema=SCHEMA)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept."""

    def stop(self) -> None:
        """Nothing is held."""


def endings(spark: Any, ends: bool) -> Any:
    """The stream of endings, for one of the two queries."""
    spark.dataSource.register(EndingSource)
    return spark.readStream.format(EndingSource.name()).option("ends", str(ends).lower()).load()


class ToItsEnd:
    """The two queries of a run over files, with the interface of one.

    `begin` starts a query; its argument is whether the query ends the run.
    """

    def __init__(self, begin: Callable[[bool], Any]) -> None:
        self._begin = begin
        self._before: list[Any] = []
        self._ends = False
        self._query = begin(False)

    @property
    def recentProgress(self) -> list[Any]:
        """Batches of both queries."""
        return [*self._before, *self._query.recentProgress]

    @property
    def status(self) -> Any:
        """The status of the running query."""
        return self._query.status

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait for at most so many seconds; raises the error of a failed query."""
        ended: bool | None = self._query.awaitTermination(timeout)
        if self._ends or ended is False:
            return ended
        self._before = self._query.recentProgress
        self._ends = True
        self._query = self._begin(True)
        return self.awaitTermination(timeout)

    def stop(self) -> None:
        """Stop between two batches."""
        self._query.stop()
