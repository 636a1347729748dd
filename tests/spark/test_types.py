"""Types that messages have no values for are refused by the name of the column."""

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import types

from sow.errors import ClientError
from sow.spark.types import check_types

pytestmark = pytest.mark.spark

TEXT = types.StringType()


def schema(kind):
    return types.StructType([types.StructField("x", kind)])


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (types.VariantType(), r"column x is of type variant, .* use to_json\(column\)"),
        (types.DayTimeIntervalType(), "column x is of type interval"),
        (types.YearMonthIntervalType(), "column x is of type interval"),
        (types.MapType(types.DoubleType(), TEXT), "names of fields are texts, or whole numbers"),
        (types.ArrayType(types.VariantType()), "column x is of type variant"),
        (types.MapType(TEXT, types.VariantType()), "column x is of type variant"),
        (schema(types.VariantType()), r"column x\.x is of type variant"),
    ],
)
def test_a_type_without_values_is_refused(kind, says):
    with pytest.raises(ClientError, match=says):
        check_types(schema(kind))


def test_all_others_are_taken():
    taken = [types.LongType(), types.DecimalType(38, 10), types.BinaryType(), types.NullType()]
    taken += [types.TimestampNTZType(), types.DateType(), types.MapType(types.IntegerType(), TEXT)]
    for kind in taken:
        check_types(schema(types.ArrayType(kind)))
