"""The values of a pipeline, judged by their spelling."""

import pytest

from sow.config.diagnostics import MistakeError
from sow.config.elements.pipeline_types import (
    COLUMNS,
    PLACE,
    SHARED_PLACE,
    TRIGGER,
    VIEW_NAME,
    format_of,
    spark_master,
)
from tests.cases import all_cases

MASTERS = [
    "local",
    "local[4]",
    "local[*]",
    "local[*, 3]",
    "local-cluster[2,1,1024]",
    "spark://one:7077,two:7077",
    "yarn",
    "k8s://https://host:6443",
    "sc://host:15002/;token=x",
    "own://host",
]


@all_cases("text", MASTERS)
def test_masters_of_spark_are_taken(text):
    assert spark_master(text) == text


@all_cases(
    ("text", "meant"),
    [
        ("loacl[2]", "local[2]"),
        ("Local[*]", "local[*]"),
        ("local [2]", "local[2]"),
        ("local[2", "local[2]"),
        ("local(2)", "local[2]"),
        ("local[0]", "local[2]"),
        ("sparc://host:7077", "spark://host:7077"),
        ("spark:/host:7077", "spark://host:7077"),
        ("spark//host:7077", "spark://host:7077"),
        ("yran", "yarn"),
        ("k8://https://host:1", "k8s://https://host:1"),
        ("sc:/host", "sc://host"),
    ],
)
def test_a_misspelt_master_of_spark_is_answered_with_the_nearest(text, meant):
    with pytest.raises(MistakeError) as caught:
        spark_master(text)
    assert caught.value.instead == f"did you mean {meant}?"


@pytest.mark.parametrize("text", ["everywhere", "[2]", "host:7077"])
def test_what_is_like_no_master_of_spark_is_sent_them_all(text):
    with pytest.raises(MistakeError) as caught:
        spark_master(text)
    assert caught.value.instead.startswith("write local[2], spark://host:7077, yarn, ")


@pytest.mark.parametrize(
    "text",
    ["in", "/in/*.csv", "s3a://bucket/x", "hdfs:/x", "hdfs:///x", "file:/x", "dbfs:/x", "C:/x"],
)
def test_a_place_is_a_path_or_a_url(text):
    assert PLACE.read(text) == text


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("s3a:/bucket", "s3a://bucket"),
        ("s3a:bucket/x", "s3a://bucket/x"),
        ("gs:///bucket/x", "gs://bucket/x"),
        ("s3://", "s3://bucket"),
    ],
)
def test_a_url_of_a_bucket_names_it(text, meant):
    with pytest.raises(MistakeError) as caught:
        PLACE.read(text)
    assert caught.value.instead == f"write {meant}"


@pytest.mark.parametrize("text", ["late", "/late", "s3a://bucket/x", "hdfs:///x", "file:///x"])
def test_tasks_write_files_of_their_own_where_all_of_them_are(text):
    assert SHARED_PLACE.read(text) == text


@pytest.mark.parametrize("text", ["dbfs:/x", "oss://bucket/x", "wasbs://a@b/c"])
def test_a_place_that_only_sparks_java_reaches_is_none_for_its_tasks(text):
    assert PLACE.read(text) == text
    with pytest.raises(MistakeError, match="is no place that tasks reach"):
        SHARED_PLACE.read(text)
    with pytest.raises(MistakeError, match="names no bucket"):
        SHARED_PLACE.read("s3a:/x")


def test_columns_are_read_as_sql_has_them():
    text = "id long,\n  px double"
    assert COLUMNS.read(text) == text
    with pytest.raises(MistakeError, match="did you mean long"):
        COLUMNS.read("id lng")


def test_a_trigger_is_an_interval_or_once():
    assert (TRIGGER.read("2s"), TRIGGER.read("once")) == (2_000_000, None)
    with pytest.raises(MistakeError) as caught:
        TRIGGER.read("10ms")
    assert caught.value.instead == "write 100ms or more, or 'once'"


@pytest.mark.parametrize("text", ["1a", "a-b", "a b", "ä"])
def test_a_view_is_called_what_sql_can_write(text):
    with pytest.raises(MistakeError, match="without quotes"):
        VIEW_NAME.read(text)


def test_a_format_is_one_word_and_ours_are_spelt_in_one_way():
    kind = format_of("csv")
    assert kind.name == "`csv` or another of Spark's"
    assert kind.read("org.example.Kind$Of") == "org.example.Kind$Of"
    for text, says in (("CSV", "spelt otherwise"), ("two words", "no name of a format")):
        with pytest.raises(MistakeError, match=says):
            kind.read(text)
