"""One sentence is found in what Spark says of an error."""

import traceback

import pytest

from sow.errors import BadFilter, ClientError, SowError
from sow.spark.http import ServerRefusal
from sow.spark.reasons import EARLIER_RELEASE, KAFKA, reason
from sow.spark.rows import DataLoss

SENTENCE = "http://host: there is no topic of that name"


@pytest.mark.parametrize(
    "error",
    [
        ServerRefusal(SENTENCE, {}),
        BadFilter(SENTENCE),
        ClientError(SENTENCE),
        SowError(SENTENCE),
        DataLoss(SENTENCE),
        ValueError(SENTENCE),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_sentence_of_ours_is_taken_out_of_what_spark_wraps_it_in(error):
    lines = "".join(traceback.format_exception(error))
    wrapped = f"[PYTHON_DATA_SOURCE_ERROR] Traceback:\n  File x\n{lines}\tat org.apache"
    assert reason(RuntimeError(wrapped)) == SENTENCE


def test_of_an_error_of_sparks_the_first_line_is_said():
    assert reason(RuntimeError("[PARSE] no table\n== SQL ==\nSELECT")) == "[PARSE] no table"


def test_an_error_without_words_is_named():
    assert reason(KeyError()) == "KeyError"


def test_a_missing_connector_for_kafka_is_said_with_the_setting_that_brings_it():
    assert reason(RuntimeError("Failed to find the data source: kafka. Deploy")) == KAFKA


def test_a_checkpoint_of_an_earlier_release_is_said_with_what_to_do():
    wrapped = (
        "assertion failed: There are [1] sources in the checkpoint offsets and now there are [2] "
        "sources requested by the query. Cannot continue."
    )
    assert reason(RuntimeError(wrapped)) == EARLIER_RELEASE
