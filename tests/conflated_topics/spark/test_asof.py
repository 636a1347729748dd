"""`asof_join` refuses sides that do not fit; tests/spark/test_asof.py runs it on Spark."""

import pytest

from conflated_topics.spark import asof_join
from tests.conflated_topics.frame import Frame

pytest.importorskip("pyspark")

TRADES = "sym string, ts timestamp, id bigint"
QUOTES = "sym string, ts timestamp, bookmark bigint, px double"


def refused(left=TRADES, right=QUOTES, keys="sym", streams=(False, False), **options):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        asof_join(Frame(left, streams[0]), Frame(right, streams[1]), keys, "ts", "2s", **options)
    return str(error.value)


@pytest.mark.parametrize(
    ("streams", "says"),
    [
        ((True, False), "the left side is a stream and the right side is not"),
        ((False, True), "the right side is a stream and the left side is not"),
    ],
)
def test_a_stream_is_not_joined_with_a_batch(streams, says):
    assert says in refused(streams=streams)


@pytest.mark.parametrize("streams", [(False, False), (True, True)])
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"keys": []}, "name at least one column of both sides"),
        ({"keys": "symbol"}, "has no column 'symbol'"),
        ({"right": "sym bigint, ts timestamp"}, "'sym' is string on the left and int64 on the"),
        ({"right": f"{QUOTES}, id string"}, "both sides have a column 'id'"),
        ({"right": "sym string, ts string", "left": "sym string, ts string"}, "cast it to a time"),
        ({"order": "seq"}, "the right side has no column 'seq', which order names"),
        ({"left": f"{TRADES}, a.b bigint"}, "has a dot or a backtick in its name"),
        ({"lateness": "soon"}, "is not an interval"),
    ],
)
def test_columns_and_options_that_do_not_fit_are_refused(streams, options, says):
    assert says in refused(streams=streams, **options)
