"""One sentence is found in what Spark says of an error."""

import traceback

import pytest

from sow.errors import BadFilter, ClientError, SowError
from sow.spark.error_text import EARLIER_RELEASE, KAFKA, reason
from sow.spark.http import ServerRefusal
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


CALLED = "An error occurred while calling o55.load.\n: org.apache.spark.SparkClassNotFound: "


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            f"{CALLED}[DATA_SOURCE_NOT_FOUND] Failed to find the data source: parket. Make sure "
            "the provider name is correct. SQLSTATE: 42K02\n\tat org.apache.spark",
            "Format: Spark has no format parket; did you mean parquet? Add a package with "
            "<Setting Name='spark.jars.packages' Value='…'/>",
        ),
        (
            "[PATH_NOT_FOUND] Path does not exist: file:/x/y. SQLSTATE: 42K03",
            "Path: Path does not exist: file:/x/y; create it, or write where the files are; a "
            "relative path starts at the data directory",
        ),
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted:\n"
            "Caused by: [FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Encountered error "
            "while reading file file:///a. Data type mismatches. SQLSTATE: KD001\n\tat org",
            "Schema: Encountered error while reading file file:///a. Data type mismatches; write "
            "the columns as the files have them, or leave Schema out",
        ),
        (
            "Schema must be specified when creating a streaming source DataFrame.",
            "Schema: files of this format do not declare their columns; write a <Schema>",
        ),
        (f"{CALLED}something else\n\tat org", "something else"),
    ],
)
def test_an_error_of_sparks_own_names_the_element_that_it_is_about(text, says):
    assert reason(RuntimeError(text)) == says
