"""Records as tables. Arrow and pandas are imported when somebody asks for them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sow.errors import ClientError

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
    return table_of_documents(list(records), schema)


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
    """An Arrow table as a pandas DataFrame; raises ClientError where there is no pandas."""
    try:
        return table.to_pandas()
    except ModuleNotFoundError:
        raise ClientError(
            "pandas is not installed; pip install 'sow[pandas]', or use to_arrow"
        ) from None
