"""`conflate` refuses arguments that do not fit; tests/spark/test_conflate.py runs it on Spark."""

from datetime import timedelta

import pytest

from conflated_topics.spark import conflate
from tests.cases import all_cases
from tests.conflated_topics.frame import Frame

pytest.importorskip("pyspark")

LOG = "sym string, ts timestamp, bookmark bigint, px double"


def refused(interval="1s", keys="sym", ddl=LOG, **options):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        conflate(Frame(ddl), keys, "ts", interval, **options)
    return str(error.value)


@pytest.mark.parametrize("late", [True, "", " "])
def test_late_is_the_name_of_a_column(late):
    assert f"late is {late!r}; give the name of the column" in refused(late=late)


@all_cases(
    ("options", "says"),
    [
        ({"late": "px"}, "there is a column 'px' already"),
        ({"late": "PX"}, "there is a column 'PX' already"),  # names ignore case in Spark
        ({"late": "window_end"}, "there is a column 'window_end' already"),
        ({"null_keys": "fold"}, "write 'refuse' or 'drop'"),
        ({"keys": "sim"}, "did you mean 'sym'"),
        ({"interval": "1"}, "unit"),
        ({"interval": "0s"}, "must be positive"),
        ({"lateness": "2"}, "no unit"),
        ({"lateness": "-1s"}, "is not an interval"),
        ({"max_skew": "soon"}, "is not an interval"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused(options, says):
    assert says in refused(**options)


@pytest.mark.parametrize(
    ("intervals", "options", "says"),
    [
        ([], {}, "the list of intervals is empty"),
        (["1s", "1s"], {}, "has one twice"),
        (["1s", timedelta(seconds=2)], {}, "is no text"),
        (["1s", "2"], {}, "no unit"),
        (["1s"], {"late": "interval"}, "'interval' is a column of the result"),
        (["1s"], {"ddl": f"{LOG}, interval string"}, "'interval' is a column of the result"),
    ],
)
def test_a_list_of_intervals_that_cannot_be_one_is_refused(intervals, options, says):
    assert says in refused(intervals, **options)


@pytest.mark.parametrize("name", ["a.b", "a`b", "__verdict", "__bucket"])
def test_a_column_whose_name_cannot_be_is_refused(name):
    assert f"{name!r}" in refused(ddl=f"{LOG}, {name} bigint")
