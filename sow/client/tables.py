"""Records as tables. Arrow and pandas are imported when somebody asks for them."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from sow.errors import ClientError, SowError

SOW_KEY = "sow_key"
"""The column of tables that says which record a row is."""
NUMBERS: Mapping[str, Callable[[str], int | float]] = {"int64": int, "double": float}
"""What makes a message of one number a value of its column: it comes as text."""


def arrow() -> Any:
    """pyarrow, which tables alone need; raises ClientError where it is not installed."""
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise ClientError(
            f"{error.name} is not installed; pip install 'sow[arrow]', or read records as they come"
        ) from None
    return pyarrow


def to_arrow(records: Sequence[Any], schemas: Sequence[Any]) -> Any:
    """Documents as a pyarrow Table, by the schemas of the server's answers in Arrow about the
    topics that they are of.

    Where topics have a column in different types it holds JSON texts. Records that are no objects
    stand in the column ``value``: numbers where the server has such, else texts or bytes as they
    come.
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
    """Makes tables of records one after the other, and of each record only when it has changed.

    What is kept is the last table and the documents that it was made of: a document that is still
    the same object is not looked at again, its row is copied by Arrow. Documents are replaced when
    they change, never written into (`sow.core.delta.merged` makes new ones).
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
    """Makes a table of an answer's own rows, JSON texts, by the columns that were told with them.

    Where the server has told no columns, or the declared ones alone, they are asked for once; where
    it does not answer any more, the types are those of the rows.
    """

    def __init__(
        self,
        topic: str,
        rows: Sequence[bytes],
        told: str | None,
        ask: Callable[[], Awaitable[Any]],
    ) -> None:
        """`told` is the server's text, `ask` asks for the schema."""
        self.topic = topic
        self._rows = rows
        self._sent = told
        self._ask = ask
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
        """Know the columns, and ask for them if need be."""
        if not self.is_settled:
            with contextlib.suppress(SowError):
                self._schema = await self._ask()

    def table(self, records: Sequence[Any]) -> Any:
        """The pyarrow Table of the rows, which are `records` decoded."""
        known = self._known()
        from sow.messages.answer_columns import table_of_rows

        schema = known.schema() if self._schema is None else self._schema
        return table_of_rows(self._rows, records, schema)


def from_stream(content: bytes) -> Any:
    """The pyarrow Table that an Arrow stream of the server's holds."""
    return arrow().ipc.open_stream(content).read_all()


def to_polars(table: Any) -> Any:
    """An Arrow table as a polars DataFrame; raises ClientError where there is no polars."""
    try:
        import polars
    except ModuleNotFoundError:
        raise ClientError(
            "polars is not installed; pip install 'sow[polars]', or use to_arrow"
        ) from None
    return polars.from_arrow(table)


def to_pandas(table: Any) -> Any:
    """An Arrow table as a pandas DataFrame; raises ClientError where there is no pandas.

    Integers and booleans are of the types of pandas that know of gaps, whether a column has one or
    not: numpy's integers know of none, and pandas makes doubles of them, which hold 53 bits.
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
