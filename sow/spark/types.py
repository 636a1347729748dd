"""The types of Spark that have values in messages.

Reads and writes refuse the others beforehand, with the name of the column: an interval or a variant
would come back as another value.
"""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sow.errors import ClientError

WHOLE_TYPES = (ByteType, ShortType, IntegerType, LongType)
SCALARS = (
    *WHOLE_TYPES,
    StringType,
    BooleanType,
    FloatType,
    DoubleType,
    DecimalType,
    BinaryType,
    DateType,
    TimestampType,
    TimestampNTZType,
    NullType,
)
INSTEAD = {
    "variant": "to_json(column)",
    "interval": "cast(column as string), or a number of seconds",
    "time": "cast(column as string)",
}


def check_types(schema: StructType) -> None:
    """Raise ClientError for the first column of a type without values in messages."""
    for field in schema:
        _check(field.name, field.dataType)


def _check(name: str, kind: DataType) -> None:
    match kind:
        case StructType():
            for field in kind:
                _check(f"{name}.{field.name}", field.dataType)
        case ArrayType():
            _check(name, kind.elementType)
        case MapType():
            if not isinstance(kind.keyType, (StringType, *WHOLE_TYPES)):
                raise ClientError(
                    f"column {name} is of type {kind.simpleString()}: names of fields are texts, "
                    "or whole numbers; use map_from_entries with keys cast to string"
                )
            _check(name, kind.valueType)
        case _ if not isinstance(kind, SCALARS):
            text = kind.simpleString()
            near = next((use for word, use in INSTEAD.items() if word in text), "a cast")
            raise ClientError(
                f"column {name} is of type {text}, which has no values in messages; use {near}"
            )
