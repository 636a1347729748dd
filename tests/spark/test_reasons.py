"""One sentence is found in what Spark says of an error."""

from sow.spark.reasons import EARLIER_RELEASE, KAFKA, reason


def test_a_sentence_of_ours_is_taken_out_of_what_spark_wraps_it_in():
    wrapped = (
        "[PYTHON_DATA_SOURCE_ERROR] Traceback (most recent call last):\n"
        "sow.spark.http.Refused: http://host: there is no topic of that name\n\tat org.apache"
    )
    assert reason(RuntimeError(wrapped)) == "http://host: there is no topic of that name"


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
