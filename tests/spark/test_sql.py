"""Spark's parser says what is wrong with a query, without a session's data."""

import pytest

from sow.spark.sql import problems

pytestmark = pytest.mark.spark


def test_what_spark_cannot_parse_is_one_sentence(spark):
    good = "SELECT sym, count(*) FROM source GROUP BY sym, window(ts, '1 minute')"
    bad = "SELECT sym FROM source GROUP sym"
    one, two = problems(spark._jvm, [good, bad])
    assert one == ""
    assert "Syntax error" in two
    assert "\n" not in two
