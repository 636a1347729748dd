"""What a pipeline may say, element by element."""

import pytest

from sow.config.diagnostics import MistakeError
from sow.config.elements.pipeline import (
    COLUMNS,
    PLACE,
    SHARED_PLACE,
    TRIGGER,
    VIEW_NAME,
    format_of,
    spark_master,
)
from sow.core.pipelines import Conflate, PipelineOption, Sink, Source, Static

SOURCE = "<Source><Format>rate</Format></Source>"
SINK = "<Sink><Topic>orders</Topic></Sink>"


@pytest.fixture
def pipeline(instance):
    def read(source=SOURCE, more="", sink=SINK):
        loaded = instance(
            "<SOW><Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
            f"</SOW>\n<Pipelines><Pipeline><Name>p</Name>{source}{more}{sink}</Pipeline>"
            "</Pipelines>"
        )
        assert loaded.findings == ()
        (found,) = loaded.configuration.pipelines
        return found

    return read


def test_what_is_not_said_takes_its_default(pipeline):
    found = pipeline()
    assert (found.name, found.line) == ("p", 2)
    assert found.source == Source(format="rate")
    assert found.sink == Sink(topic="orders")
    assert (found.output_mode, found.trigger_us, found.master) == ("append", 1_000_000, "local[2]")
    assert not found.autostart


@pytest.mark.parametrize(
    "form",
    [
        "<Option><Name>rowsPerSecond</Name><Value>5</Value></Option>",
        '<Option Name="rowsPerSecond" Value="5"/>',
    ],
)
def test_an_option_is_written_in_either_form(pipeline, form):
    found = pipeline(source=f"<Source><Format>rate</Format>{form}</Source>")
    assert found.source.options == (PipelineOption("rowsPerSecond", "5"),)


def test_files_have_a_path_a_schema_and_a_time(pipeline):
    found = pipeline(
        source="<Source><Format>csv</Format><Path>in</Path><Schema>id int, at timestamp</Schema>"
        "<TimeColumn>at</TimeColumn><Watermark>2s</Watermark></Source>"
    )
    assert found.source == Source(
        format="csv",
        path="in",
        schema="id int, at timestamp",
        time_column="at",
        watermark_us=2_000_000,
    )


def test_a_source_has_the_name_of_its_view_or_is_called_source(pipeline):
    found = pipeline(
        source='<Source name="a"><Format>rate</Format></Source>'
        "<Source><Format>rate</Format></Source>",
        more="<SQL>SELECT * FROM a UNION ALL SELECT * FROM source</SQL>",
    )
    assert found.sources == (Source(name="a", format="rate"), Source(format="rate"))


def test_a_static_table_is_read_as_a_source_is(pipeline):
    found = pipeline(
        more="<Static><Name>names</Name><Format>csv</Format><Path>names.csv</Path>"
        '<Schema>id int</Schema><Option Name="header" Value="true"/></Static>'
        "<SQL>SELECT * FROM source JOIN names USING (id)</SQL>"
    )
    header = PipelineOption("header", "true")
    assert found.statics == (
        Static(name="names", format="csv", path="names.csv", schema="id int", options=(header,)),
    )


def test_any_format_of_sparks_is_taken_as_it_is(pipeline):
    found = pipeline(
        source="<Source><Format>delta</Format></Source>",
        sink="<Sink><Format>org.example.Kind$Of</Format></Sink>",
    )
    assert found.source == Source(format="delta")
    assert found.sink == Sink(format="org.example.Kind$Of")


def test_conflate_has_keys_an_interval_and_a_policy(pipeline):
    found = pipeline(
        more="<Conflate><Key>/value</Key><Interval>1s</Interval><Policy>sum</Policy></Conflate>"
    )
    assert found.conflate == Conflate(keys=("/value",), interval_us=1_000_000, policy="sum")


def test_a_sink_may_be_files(pipeline):
    found = pipeline(sink="<Sink><Format>parquet</Format><Path>out</Path></Sink>")
    assert found.sink == Sink(format="parquet", path="out")


def test_settings_are_for_spark(pipeline):
    found = pipeline(more='<Setting Name="spark.x" Value="1"/><Trigger>once</Trigger>')
    assert found.settings == (PipelineOption("spark.x", "1"),)
    assert found.trigger_us is None


@pytest.mark.parametrize(
    ("element", "value", "said"),
    [
        ("Format", "Parquet", "write parquet"),
        ("Watermark", "soon", "Watermark"),
        ("Path", "", "Path"),
    ],
)
def test_a_value_that_cannot_be_read_is_found(instance, element, value, said):
    given = f"<{element}>{value}</{element}>"
    source = given if element == "Format" else f"<Format>csv</Format>{given}"
    loaded = instance(
        f"<Pipelines><Pipeline><Name>p</Name><Source>{source}</Source>"
        "<Sink><Format>csv</Format><Path>o</Path></Sink></Pipeline></Pipelines>"
    )
    assert [said in str(finding) for finding in loaded.errors if finding.element == element] == [
        True
    ]


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


@pytest.mark.parametrize("text", MASTERS)
def test_masters_of_spark_are_taken(text):
    assert spark_master(text) == text


@pytest.mark.parametrize(
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
