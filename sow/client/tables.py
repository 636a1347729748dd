"""Records as tables. Arrow and pandas are imported when somebody asks for them."""

from collections.abc import Sequence
from typing import Any

from sow.errors import ClientError


def to_arrow(records: Sequence[Any]) -> Any:
    """Documents as a pyarrow Table, a column for each field met in any of them; one that is no
    object stands in the column ``value``.

    Its types are those of an answer in Arrow (`sow.messages.arrow`).
    """
    from sow.messages.arrow import table_of_documents

    return table_of_documents(
        [record if isinstance(record, dict) else {"value": record} for record in records]
    )


def from_stream(content: bytes) -> Any:
    """The pyarrow Table that an Arrow stream of the server's holds."""
    import pyarrow as pa

    return pa.ipc.open_stream(content).read_all()


def to_polars(table: Any) -> Any:
    """An Arrow table as a polars DataFrame; raises ClientError where there is no polars."""
    try:
        import polars
    except ModuleNotFoundError:
        raise ClientError("polars is not installed; pip install polars, or use to_arrow") from None
    return polars.from_arrow(table)


def to_pandas(table: Any) -> Any:
    """An Arrow table as a pandas DataFrame; raises ClientError where there is no pandas."""
    try:
        return table.to_pandas()
    except ModuleNotFoundError:
        raise ClientError("pandas is not installed; pip install pandas, or use to_arrow") from None
