"""Records as tables. Arrow and pandas are imported when somebody asks for them."""

from collections.abc import Sequence
from typing import Any

from sow.errors import ClientError


def to_arrow(records: Sequence[Any]) -> Any:
    """Documents as a pyarrow Table, a column for each field met in any of them."""
    import pyarrow as pa

    rows = [record if isinstance(record, dict) else {"value": record} for record in records]
    names = dict.fromkeys(name for row in rows for name in row)
    try:
        return pa.table({name: [row.get(name) for row in rows] for name in names})
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ClientError(
            f"a field's values are of kinds that no column holds together: {error}; select others"
        ) from None


def to_pandas(table: Any) -> Any:
    """An Arrow table as a pandas DataFrame; raises ClientError where there is no pandas."""
    try:
        return table.to_pandas()
    except ModuleNotFoundError:
        raise ClientError("pandas is not installed; pip install pandas, or use to_arrow") from None
