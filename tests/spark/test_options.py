"""Options are what was written, and mean something where they are used."""

import subprocess
import sys

import pytest

from sow.core.pipelines import LOG, OF_OTHERS, RECORDS, STREAM, STREAM_WRITE, USES, WRITE, plain
from sow.errors import ClientError
from sow.spark.options import read_options
from tests.cases import all_cases
from tests.edge.certificates import certificates

TOPIC = {"topic": "orders"}
VALUES = {
    "epoch": "1",
    "last": "5",
    "partitions": "2",
    "maxRowsPerTrigger": "5",
    "batchRows": "5",
    "mode": "delta",
    "readMode": "changes",
    "changeFormat": "cdc",
    "rerun": "skip",
    "allowEmpty": "true",
    "closesWithin": "1s",
    "inferSchema": "true",
    "pushdown": "true",
    "failOnDataLoss": "false",
    "retryTimeout": "5",
}


@all_cases("name", sorted(USES))
@all_cases("use", [RECORDS, LOG, STREAM, WRITE, STREAM_WRITE])
def test_an_option_is_taken_where_it_means_something_and_refused_by_name_elsewhere(
    name, use, tmp_path
):
    given = {**TOPIC, name: VALUES.get(name, "orders")}
    if name == "allowEmpty" and use == WRITE:
        given["mode"] = "replace"
    if name == "ca":
        given["ca"] = certificates(tmp_path).ca
    if use in USES[name]:
        assert read_options(given, use)
        return
    with pytest.raises(ClientError, match=f"the option {name} means nothing in {use}"):
        read_options(given, use)


@pytest.mark.parametrize("name", ["deadLetterPath", "consumer", "writer", "asOf", "keyColumn"])
def test_an_option_that_is_empty_says_nothing(name):
    for text in ("", " "):
        with pytest.raises(ClientError, match=f"the option {name} is empty; give it a value"):
            read_options({**TOPIC, name: text})


def test_the_data_source_is_imported_without_the_configuration():
    """Spark starts a process of Python's for each plan and stream, and each imports it."""
    pytest.importorskip("pyspark")
    heavy = ("sow.config", "sow.expressions", "lark", "jsonpath_ng")
    code = f"import sys, sow.spark.source; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_names_are_written_in_any_case():
    assert read_options({"TOPIC": "orders", "as_of": "7"}, RECORDS).as_of == "7"


def test_an_end_of_the_log_needs_a_beginning():
    with pytest.raises(ClientError, match=r"endingBookmark .* startingBookmark"):
        read_options({**TOPIC, "endingBookmark": "5"}, RECORDS)


@pytest.mark.parametrize("other", [{"asOf": "7"}, {"projection": "/id"}, {"grouping": "/id"}])
def test_events_are_of_the_present_and_in_no_groups(other):
    assert read_options({**TOPIC, "last": "5"}, RECORDS).last == 5
    with pytest.raises(ClientError, match="leave out asOf, projection and grouping"):
        read_options({**TOPIC, "last": "5", **other}, RECORDS)


def test_a_path_is_not_passed_over():
    # A table is requested with the path of a warehouse.
    with pytest.raises(ClientError, match=r"a topic is named by .* CREATE TEMPORARY VIEW orders"):
        read_options({**TOPIC, "path": "/tmp/orders"})


def test_what_spark_adds_of_its_own_is_no_mistake():
    assert read_options({**TOPIC, "checkpointLocation": "c", "queryName": "q"}, STREAM_WRITE)


def read(**given):
    return read_options({"topic": "orders", **given})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60", 60), ("0", 0), ("1.5", 1.5), ("60s", 60), ("1m", 60), ("5ms", 0.005)],
)
def test_a_time_to_retry_is_a_number_of_seconds_or_an_interval(text, seconds):
    assert read(retryTimeout=text).retry_s == seconds


@pytest.mark.parametrize("text", ["", "soon", "1x", "nan", "1e", "-5", "1e99"])
def test_what_is_no_time_to_retry_is_refused_with_what_to_write(text):
    with pytest.raises(ClientError, match=r"write seconds, such as 60 or 1m"):
        read(retryTimeout=text)


def test_windows_close_within_an_interval():
    assert read(closesWithin="1.5s").closes_within_us == 1_500_000
    with pytest.raises(ClientError, match="closesWithin: '5' has no unit; write 5s"):
        read(closesWithin="5")


def test_columns_stand_between_commas():
    assert read(columns=" /a, /b").columns == ("/a", "/b")


def test_a_mistyped_option_is_requested_about():
    with pytest.raises(ClientError, match="no option 'fliter'; did you mean filter"):
        read(fliter="1=1")


@pytest.mark.parametrize(("name", "ours"), OF_OTHERS.items())
def test_an_option_of_another_connector_is_known_by_what_it_is_called_here(name, ours):
    assert ours in USES
    assert plain(name) == name
    with pytest.raises(ClientError, match=f"no option '{name}'; did you mean {ours}\\?"):
        read(**{name: "1"})


def test_a_batch_read_does_not_begin_with_a_snapshot():
    given = {**TOPIC, "startingBookmark": "snapshot"}
    assert read_options(given, STREAM).starting == "snapshot"
    with pytest.raises(ClientError, match="to read the records alone leave it out"):
        read_options(given, LOG)


@pytest.mark.parametrize(
    ("use", "options", "says"),
    [
        (STREAM_WRITE, {"mode": "replace"}, "mode replace is for batch writes"),
        (WRITE, {"allowEmpty": "true"}, "needs mode replace"),
    ],
)
def test_a_topic_is_replaced_by_batches_alone(use, options, says):
    with pytest.raises(ClientError, match=says):
        read_options({**TOPIC, **options}, use)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": " "}, "give the topic"),
        ({**TOPIC, "token": "secret\n"}, "the token has characters that a header cannot"),
        ({**TOPIC, "token": "t", "tokenFile": "f"}, "give token or tokenFile, not both"),
        ({**TOPIC, "tokenFile": " "}, "the option tokenFile is empty"),
    ],
)
def test_what_no_request_can_hold_is_refused_before_one_is_sent(given, said):
    with pytest.raises(ClientError, match=said):
        read_options(given)


def test_certificates_are_read_where_the_options_are(tmp_path, monkeypatch):
    file = certificates(tmp_path).ca
    assert "BEGIN CERTIFICATE" in read_options({**TOPIC, "ca": file}).ca
    assert read_options(TOPIC).ca is None
    monkeypatch.setenv("SOW_CA", file)
    assert "BEGIN CERTIFICATE" in read_options(TOPIC).ca
    for wrong in (str(tmp_path / "missing"), str(tmp_path)):
        with pytest.raises(ClientError, match=f"ca {wrong} cannot be used"):
            read_options({**TOPIC, "ca": wrong})
