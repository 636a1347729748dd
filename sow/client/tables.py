"""Records as tables. Arrow, pandas and polars are imported on demand."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from sow.errors import ClientError, SowError

SOW_KEY = "sow_key"
"""The column with the SowKey of each row."""
NUMBERS: Mapping[str, Callable[[str], int | float]] = {"int64": int, "double": float}
"""Converts a message that is one number, which comes as text, to a value of its column."""


def arrow() -> Any:
    """pyarrow, which only tables need; raises ClientError if it is not installed."""
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise ClientError(
            f"{error.name} is not installed; pip install 'sow[arrow]', or read records as they come"
        ) from None
    return pyarrow


def to_arrow(records: Sequence[Any], schemas: Sequence[Any]) -> Any:
    """Documents as a pyarrow Table, with the schemas that the server gives for their topics.

    A column that topics have with different types holds JSON texts. Records that are not objects
    are in the column ``value``: numbers if the schema says so, otherwise texts or bytes.
    """
    arrow()
    from sow.messages.arrow import joined_schema, table_of_documents

    schema = joined_schema(schemas)
    if not any(isinstance(record, dict) for record in records) and records:
        number = NUMBERS.get(str(schema.field("value").type)) if "value" in schema.names else None
        values = records if number is None else list(map(number, records))
        if number is None:
            schema = joined_schema([])
        return table_of_documents([{"value": value} for value in values], schema)
    rows = [one if isinstance(one, dict) else {"value": one} for one in records]
    return table_of_documents(rows, schema)


class KeptTable:
    """Converts records to tables repeatedly, and each record only when it has changed.

    It keeps the last table and its documents: the row of a document that is still the same object
    is copied by Arrow. Documents are immutable: a change replaces them (`sow.core.delta.merged`).
    """

    def __init__(self) -> None:
        self._documents: dict[str, Any] = {}
        self._rows: Any = None

    def of(self, records: Mapping[str, Any], schemas: Sequence[Any]) -> Any:
        """These records by SowKey as a pyarrow Table, in their order, by the schemas of their
        topics; `sow_key` is the first column."""
        pa = arrow()
        self._rows = self._made(records, schemas)
        self._documents = dict(records)
        rows = self._rows
        if SOW_KEY in rows.column_names:
            rows = rows.drop_columns([SOW_KEY])
        return rows.add_column(0, SOW_KEY, pa.array([*records], pa.string()))

    def _made(self, records: Mapping[str, Any], schemas: Sequence[Any]) -> Any:
        import numpy as np  # which comes with pyarrow

        known = self._documents
        new = [document for key, document in records.items() if known.get(key) is not document]
        made = to_arrow(new, schemas)
        if self._rows is None or not made.schema.equals(self._rows.schema, check_metadata=True):
            return made if len(new) == len(records) else to_arrow([*records.values()], schemas)
        if not new and [*records] == [*known]:
            return self._rows
        place = {key: at for at, key in enumerate(known)}
        coming = iter(range(len(known), len(known) + len(new)))
        places = (
            place[key] if known.get(key) is document else next(coming)
            for key, document in records.items()
        )
        chosen = np.fromiter(places, np.int64, len(records))
        return arrow().concat_tables([self._rows, made]).take(chosen)


class AnswerTable:
    """Converts an answer's rows, JSON texts, to a table, with the columns that were sent with them.

    If the server sent no columns, or only the declared ones, they are requested once; if it does
    not answer, the types are inferred from the rows.
    """

    def __init__(
        self,
        topic: str,
        rows: Sequence[bytes],
        sent: str | None,
        request: Callable[[], Awaitable[Any]],
    ) -> None:
        """`sent` are the columns that the server sent, `request` requests the schema."""
        self.topic = topic
        self._rows = rows
        self._sent = sent
        self._request = request
        self._schema: Any = None

    @property
    def is_settled(self) -> bool:
        """Whether the columns are known."""
        return bool(self._known().all)

    def _known(self) -> Any:
        arrow()
        from sow.messages.answer_columns import SentColumns, read_sent

        if self._schema is not None:
            return SentColumns(True, [])
        return SentColumns(False, []) if self._sent is None else read_sent(self._sent)

    async def settle(self) -> None:
        """Request the columns if they are not known."""
        if not self.is_settled:
            with contextlib.suppress(SowError):
                self._schema = await self._request()

    def table(self, records: Sequence[Any]) -> Any:
        """The pyarrow Table of the rows, which are `records` decoded."""
        known = self._known()
        from sow.messages.answer_columns import table_of_rows

        schema = known.schema() if self._schema is None else self._schema
        return table_of_rows(self._rows, records, schema)


def from_stream(content: bytes) -> Any:
    """The pyarrow Table in an Arrow stream."""
    return arrow().ipc.open_stream(content).read_all()


def to_polars(table: Any) -> Any:
    """An Arrow table as a polars DataFrame; raises ClientError without polars."""
    try:
        import polars
    except ModuleNotFoundError:
        raise ClientError(
            "polars is not installed; pip install 'sow[polars]', or use to_arrow"
        ) from None
    return polars.from_arrow(table)


def to_pandas(table: Any) -> Any:
    """An Arrow table as a pandas DataFrame; raises ClientError without pandas.

    Integers and booleans have the nullable types of pandas, whether a column has nulls or not:
    otherwise pandas would convert integers with nulls to doubles, which hold 53 bits.
    """
    try:
        import pandas
    except ModuleNotFoundError:
        raise ClientError(
            "pandas is not installed; pip install 'sow[pandas]', or use to_arrow"
        ) from None
    pa = arrow()
    with_gaps = {pa.int64(): pandas.Int64Dtype(), pa.bool_(): pandas.BooleanDtype()}
    return table.to_pandas(types_mapper=with_gaps.get)
