"""`<Pipelines>`: valid pipelines pass, and each mistake is reported with a remedy."""

import pytest

from sow.config import loads
from sow.core.pipelines import Conflate, PipelineOption
from tests.cases import all_cases

TOPICS = """<SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>memory</Name><MessageType>json</MessageType><Key>/id</Key>
<Durability>transient</Durability></Topic>
<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic></ConflatedTopic>
</SOW>"""
FILES = "<Source><Format>parquet</Format><Path>ticks</Path><TimeColumn>ts</TimeColumn></Source>"
SOW = "<Source><Format>sow</Format><Topic>orders</Topic></Source>"
TO_TOPIC = "<Sink><Topic>orders</Topic></Sink>"
TO_FILES = "<Sink><Format>parquet</Format><Path>out</Path></Sink>"
CONFLATE = "<Conflate><Key>/sym</Key><Interval>1s</Interval></Conflate>"


def pipeline(*parts, name="p"):
    return f"<Pipeline><Name>{name}</Name>{''.join(parts)}</Pipeline>"


def option(section, name):
    end = section[section.rindex("</") :]
    return section.replace(end, f"<Option><Name>{name}</Name><Value>5</Value></Option>{end}")


def late_to(path):
    return CONFLATE.replace("</Conflate>", f"<LatePath>{path}</LatePath></Conflate>")


FORMAT = "<Source><Format>delta</Format></Source>"
STATIC = "<Static><Name>n</Name><Format>csv</Format><Path>n</Path></Static>"
TABLE = "<Static><Name>n</Name><Format>sow</Format><Topic>orders-C</Topic></Static>"
SQL = "<SQL>SELECT * FROM source JOIN n USING (id)</SQL>"


def loaded(*pipelines):
    inside = f"<Pipelines>{''.join(pipelines)}</Pipelines>"
    return loads(f"<SOWConfig><Name>t</Name>{TOPICS}{inside}</SOWConfig>")


def finding(*pipelines):
    (found,) = loaded(*pipelines).errors
    return str(found)


def test_a_pipeline_is_read_with_all_that_it_may_say():
    text = pipeline(
        "<Source><Format>csv</Format><Path>in</Path><Schema>sym string,\n  px double</Schema>"
        "<TimeColumn>at</TimeColumn><Watermark>10m</Watermark>"
        "<Option><Name>header</Name><Value>true</Value></Option></Source>",
        "<SQL>SELECT *\nFROM source</SQL>",
        "<Conflate><Key>/sym</Key><Key>/leg/side</Key><Interval>100ms</Interval>"
        "<Policy>merge</Policy><Filter>/px > 1</Filter><Lateness>2s</Lateness>"
        "<MaxSkew>5m</MaxSkew><LatePath>late</LatePath><NullKeys>drop</NullKeys>"
        "<WindowFields>true</WindowFields></Conflate>",
        "<Sink><Topic>orders</Topic></Sink>",
        "<Trigger>once</Trigger><Master>spark://host:7077</Master><Autostart>true</Autostart>"
        '<Setting Name="spark.driver.memory" Value="2g"/>',
    )
    (found,) = loaded(text).configuration.pipelines
    assert found.source.options == (PipelineOption("header", "true"),)
    assert found.source.watermark_us == 600_000_000
    assert found.sql == "SELECT *\nFROM source"
    assert found.conflate == Conflate(
        keys=("/sym", "/leg/side"),
        interval_us=100_000,
        policy="merge",
        filter="/px > 1",
        lateness_us=2_000_000,
        max_skew_us=300_000_000,
        late_path="late",
        null_keys="drop",
        window_fields=True,
    )
    assert (found.trigger_us, found.autostart, found.master) == (None, True, "spark://host:7077")
    assert found.settings == (PipelineOption("spark.driver.memory", "2g"),)


@all_cases(
    ("parts", "says"),
    [
        ((FILES.replace("<Path>ticks</Path>", ""), TO_TOPIC), "parquet needs a Path"),
        (("<Source><Format>sow</Format></Source>", TO_FILES), "sow needs a Topic"),
        ((SOW.replace("orders", "ordres"), TO_FILES), "did you mean 'orders'?"),
        ((SOW.replace("orders", "orders-C"), TO_FILES), "has no log to read; read orders"),
        ((SOW.replace("orders", "memory"), TO_FILES), "transient, so it has no log"),
        ((SOW, "<Sink></Sink>"), "needs a Topic or a Format, one of the two"),
        ((SOW, "<Sink><Format>csv</Format></Sink>"), "files need a Path"),
        ((SOW, TO_TOPIC.replace("orders", "orders-C")), "a copy of orders; write to orders"),
        (
            (FILES.replace("<TimeColumn>ts</TimeColumn>", ""), CONFLATE, TO_FILES),
            "add <TimeColumn>",
        ),
        ((SOW, late_to("out/"), TO_FILES), "out is the Path of the Sink, too; give late rows"),
        ((FILES, late_to("ticks"), TO_TOPIC), "ticks is the Path of the Source, too"),
        ((FORMAT, CONFLATE, TO_FILES), "Conflate needs the time of the rows, and delta does not"),
        (
            (FORMAT.replace("</Source>", "<Watermark>1m</Watermark></Source>"), TO_FILES),
            "Watermark needs the time of the rows",
        ),
        ((SOW, "<Sink><Format>sow</Format></Sink>"), "sow is no Sink; write <Topic>"),
        ((SOW, "<Sink><Format>rate</Format></Sink>"), "rate is no Sink"),
        ((SOW, STATIC.replace("<Path>n</Path>", ""), SQL, TO_FILES), "Static: csv needs a Path"),
        (
            (SOW, STATIC.replace("csv", "sow").replace("<Path>n</Path>", ""), SQL, TO_FILES),
            "Static: sow needs a Topic",
        ),
        (
            (SOW.replace("</Topic>", "</Topic><Path>in</Path>"), TO_FILES),
            "Path: sow makes nothing of it: its rows come from its Topic; remove it",
        ),
        (
            (FILES.replace("</Path>", "</Path><Topic>orders</Topic>"), TO_TOPIC),
            "Topic: parquet makes nothing of it: a Topic is read with the Format sow",
        ),
        (
            ("<Source><Format>rate</Format><Schema>a int</Schema></Source>", TO_FILES),
            "Schema: rate makes nothing of it",
        ),
        ((SOW, TO_TOPIC.replace("</Topic>", "</Topic><Path>o</Path>")), "or the Topic"),
        ((SOW.replace("</Topic>", "</Topic><Schema>id lng</Schema>"), TO_FILES), "mean long?"),
        ((FILES.replace("ticks", "s3a:/ticks"), TO_FILES), "Path: 's3a:/ticks' names no bucket"),
        ((SOW, TO_FILES.replace("out", "s3a:/out")), "write s3a://out"),
        ((SOW, TO_FILES, "<Checkpoint>s3a:/p</Checkpoint>"), "Checkpoint: 's3a:/p' names no"),
        (
            (SOW, "<SQL>SELECT 1 FROM source; SELECT 2 FROM source</SQL>", TO_FILES),
            "a second statement begins",
        ),
        (
            (SOW, STATIC.replace("csv", "rate").replace("<Path>n</Path>", ""), SQL, TO_FILES),
            "rate has no end, so it is no table",
        ),
        (
            (SOW, option(TABLE, "maxRowsPerTrigger"), SQL, TO_FILES),
            "means nothing in a read of records",
        ),
        ((SOW, TO_FILES, "<OutputMode>update</OutputMode>"), "files cannot be updated"),
        (
            (SOW, CONFLATE, TO_TOPIC, "<OutputMode>update</OutputMode>"),
            "Conflate hands a window on when it can change no more",
        ),
        (
            (SOW, CONFLATE.replace("</Conflate>", "<Lateness>2</Lateness></Conflate>"), TO_FILES),
            "Lateness",
        ),
        ((SOW, TO_FILES, "<Trigger>10ms</Trigger>"), "write 100ms or more, or 'once'"),
        ((SOW, TO_FILES, "<Master>loacl[2]</Master>"), "Master: 'loacl[2]' is no master"),
        ((SOW, TO_FILES, "<Trigger>sometimes</Trigger>"), "or 'once'"),
        ((SOW.replace(">sow<", ">SOW<"), TO_FILES), "is spelt otherwise; write sow"),
        ((SOW, "<Sink><Format>two words</Format></Sink>"), "is no name of a format"),
        (
            (SOW, CONFLATE.replace("<Interval>1s</Interval>", ""), TO_FILES),
            "Conflate: has no Interval",
        ),
        (
            (SOW, CONFLATE.replace("</Conflate>", "<Filter>/a =</Filter></Conflate>"), TO_FILES),
            "Filter",
        ),
        (
            (
                SOW,
                CONFLATE.replace("</Conflate>", "<Filter>SOW_KEY() = '1'</Filter></Conflate>"),
                TO_FILES,
            ),
            "the filter of a pipeline cannot use SOW_KEY()",
        ),
        ((SOW,), "has no Sink"),
        ((option(SOW, "maxRowsPerTriger"), TO_FILES), "did you mean 'maxRowsPerTrigger'?"),
        ((option(SOW, "asOf"), TO_FILES), "asOf means nothing in a stream read"),
        ((option(SOW, "topic"), TO_FILES), "topic is set by the element Topic; remove it"),
        ((SOW, option(TO_TOPIC, "epoch")), "epoch is the number of each batch"),
        ((SOW, option(TO_TOPIC, "maxRowsPerTrigger")), "means nothing in a stream write"),
        (
            (FILES.replace("</Source>", "<TimeUnit>min</TimeUnit></Source>"), TO_FILES),
            "is not one of s, ms, us, ns",
        ),
    ],
)
def test_a_mistake_is_answered_with_what_to_write(parts, says):
    assert says in finding(pipeline(*parts))


def test_options_of_other_formats_are_left_to_spark():
    assert not loaded(pipeline(option(FILES, "header"), option(TO_FILES, "other"))).findings
    assert not loaded(pipeline(option(SOW, "max_rows_per_trigger"), TO_FILES)).findings


def test_formats_that_only_spark_knows_have_only_its_rules():
    to = "<Sink><Format>delta</Format></Sink>"
    update = "<OutputMode>update</OutputMode>"
    assert not loaded(pipeline(option(FORMAT, "maxFiles"), option(to, "any"), update)).findings


def test_a_static_table_may_be_the_records_of_any_topic_or_a_part_of_the_log():
    assert not loaded(pipeline(SOW, TABLE, SQL, TO_FILES)).findings
    log = option(TABLE, "startingBookmark").replace("orders-C", "orders")
    assert not loaded(pipeline(SOW, log, SQL, TO_FILES)).findings


def test_a_checkpoint_is_one_pipelines_own():
    at = "<Checkpoint>s3a://bucket/p</Checkpoint>"
    first, second = (pipeline(SOW, TO_FILES, at, name=name) for name in "ab")
    assert loaded(first).configuration.pipelines[0].checkpoint == "s3a://bucket/p"
    assert "s3a://bucket/p is that of the pipeline in line" in finding(first, second)


def test_two_pipelines_have_two_names():
    assert "already used in line" in finding(pipeline(SOW, TO_FILES), pipeline(SOW, TO_FILES))


def test_a_pipeline_does_not_replace_a_topic_batch_by_batch():
    sink = option(TO_TOPIC, "mode").replace("<Value>5", "<Value>replace")
    for mode in ("append", "update"):
        text = pipeline(SOW, sink, f"<OutputMode>{mode}</OutputMode>")
        assert "would remove with each batch what those before it wrote" in finding(text)


def test_a_format_that_is_nearly_one_of_sparks_is_warned_of():
    near = (FORMAT.replace("delta", "parket"), TO_FILES.replace("parquet", "jsn"))
    found = loaded(pipeline(*near))
    assert found.errors == ()
    assert [str(one).partition("; ")[2] for one in found.warnings] == [
        "did you mean parquet?",
        "did you mean json?",
    ]
    for name in ("delta", "org.example.Parkett", "DELTA", "mine"):
        assert loaded(pipeline(FORMAT.replace("delta", name), TO_FILES)).warnings == ()


CSV_SINK = "<Sink><Format>csv</Format><Path>out</Path></Sink>"
CONFLATE_KEY = "<Conflate><Key>/k</Key><Interval>1s</Interval></Conflate>"


def source(name=""):
    said = f' name="{name}"' if name else ""
    return f"<Source{said}><Format>rate</Format></Source>"


def static(name):
    return f'<Static Name="{name}"><Format>csv</Format><Path>x</Path></Static>'


def sql(*views):
    return f"<SQL>SELECT * FROM {', '.join(views)}</SQL>" if views else ""


def found(*parts):
    inside = f"<Pipeline><Name>p</Name>{''.join(parts)}{CSV_SINK}</Pipeline>"
    text = f"<SOWConfig><Name>t</Name><Pipelines>{inside}</Pipelines></SOWConfig>"
    return [str(finding) for finding in loads(text).findings]


@pytest.mark.parametrize(
    "parts",
    [
        (source("a"),),
        (source("a"), sql("a")),
        (source("a"), source(), sql("A", "source")),
        (source(), static("names"), sql("source", "`names`")),
        (source(), static("names"), sql("source", "names"), CONFLATE_KEY),
    ],
)
def test_views_that_the_sql_reads_are_right(parts):
    assert found(*parts) == []


@all_cases(
    ("parts", "says"),
    [
        ((source(), source(), sql("source")), "is the view source, as the element in line"),
        ((source("a"), source("A"), sql("a")), 'give it a name of its own: <Source name="…">'),
        ((source("a"), static("a"), sql("a")), 'give it a name of its own: <Static name="…">'),
        ((source(), static("Source"), sql("source")), "is the view Source, as the element in"),
        ((source("2nd"),), "name: '2nd' is no name that SQL can write without quotes"),
        ((source("a.b"),), "use letters, digits and '_', and no digit in front"),
        ((source(), static("préis"), sql("source")), "is no name that SQL can write"),
        ((source("a"), sql("source")), "it does not read a; write a query over the view a"),
        ((source("a"), source("b"), sql("a")), "it does not read b; write a query over the views"),
        ((source(), static("t"), sql("source")), "it does not read t"),
        ((source("a"), source("b")), "several sources become one stream by SQL"),
        ((source(), static("t")), "a static table is read by SQL, and there is none; add <SQL>"),
        (
            (source("a"), source("b"), sql("a", "b"), CONFLATE_KEY),
            "to one topic by this pipeline, and conflate that topic by another",
        ),
    ],
)
def test_a_mistake_in_views_is_answered_with_what_to_write(parts, says):
    (one,) = found(*parts)
    assert says in one


def valued(**values):
    return "".join(f'<Option Name="{name}" Value="{text}"/>' for name, text in values.items())


@all_cases(
    ("options", "says"),
    [
        ({"maxRowsPerTrigger": "many"}, "is 'many'; it must be a whole number, 1 or more"),
        ({"partitions": "0"}, "partitions is '0'; it must be a whole number, 1 or more"),
        ({"readMode": "last"}, "readMode is 'last'; it must be changes or latest"),
        ({"changeFormat": "CDC"}, "changeFormat is 'CDC'; it must be rows or cdc"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss is 'no'; it must be true or false"),
        ({"retryTimeout": "soon"}, "write seconds, such as 60 or 1m"),
        ({"closesWithin": "5"}, "closesWithin: '5' has no unit; write 5s"),
        ({"startingBookmark": "never"}, "'never' is no place in the log; write earliest, latest, "),
        ({"startingBookmark": "2026-02-30T00:00:00Z"}, "30T00:00:00Z' is no place in the log"),
        ({"startingBookmark": "7,never"}, "'7,never' is no place in the log"),
        ({"filter": "/px >"}, "the end of the filter at position 5 is not understood"),
        ({"changeFormat": "cdc", "readMode": "latest"}, "the last one of each key; leave one of"),
    ],
)
def test_a_value_that_an_option_of_a_topic_cannot_have_is_found(findings, options, says):
    (found,) = findings(source=valued(**options))
    assert ": Option: " in found
    assert says in found


@pytest.mark.parametrize(
    "place",
    ["earliest", "snapshot", "0", f"{'ab' * 8}-7", "20261121T093000Z", "2026-11-21T09:30+02:00"],
)
def test_a_stream_may_begin_at_each_of_these(findings, place):
    assert findings(source=valued(startingBookmark=place)) == []


def test_what_a_write_to_a_topic_cannot_have_is_found(findings):
    (found,) = findings(sink=TOPIC_WITH.format(valued(mode="upsert")))
    assert "mode is 'upsert'; it must be publish or delta or delete or replace" in found
    (found,) = findings(sink=TOPIC_WITH.format(valued(deadLetterPath="ftp://host/dead")))
    assert "deadLetterPath: 'ftp://host/dead' is no place that tasks reach" in found


CDC = valued(changeFormat="cdc")
DESKS = """<Topic><Name>desks</Name><Pattern>^/desk/</Pattern><MessageType>json</MessageType>
<Key>/id</Key></Topic>"""


def test_rows_of_changes_are_of_one_topic_and_not_conflated(findings, instance):
    assert findings(source=CDC) == []
    (found,) = findings(source=f"<TimeColumn>_ts</TimeColumn>{CDC}", more=CONFLATE_KEY)
    assert "Conflate folds rows into one; leave changeFormat out of the Source in line" in found
    text = f"""<SOW>{DESKS}</SOW><Pipelines><Pipeline><Name>p</Name><Source><Format>sow</Format>
    <Topic>{{}}</Topic>{CDC}</Source>{CSV_SINK}</Pipeline></Pipelines>"""
    assert instance(text.format("/desk/one")).findings == ()
    (found,) = instance(text.format("desks")).findings
    assert "desks is a pattern, and changeFormat cdc is for the changes of one topic" in str(found)


TOPIC_WITH = "<Sink><Topic>orders</Topic>{}</Sink>"
FILES_WITH = "<Sink><Format>csv</Format><Path>out</Path>{}</Sink>"


@pytest.fixture
def findings(instance):
    def of(source="", sink=CSV_SINK, more=""):
        loaded = instance(
            "<SOW><Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
            "</SOW><Pipelines><Pipeline><Name>p</Name><Source><Format>sow</Format>"
            f"<Topic>orders</Topic>{source}</Source>{sink}{more}</Pipeline></Pipelines>"
        )
        return [str(found) for found in loaded.findings]

    return of


def named(*names, element="Option"):
    return "".join(f'<{element} Name="{name}" Value="5"/>' for name in names)


def test_an_option_is_given_once_however_it_is_written(findings):
    (found,) = findings(source=named("partitions", "max_rows_per_trigger", "maxRowsPerTrigger"))
    assert "Option: maxRowsPerTrigger is given in line 1 already; remove one of them" in found
    (found,) = findings(sink=TOPIC_WITH.format(named("deadLetterPath", "deadLetterPath")))
    assert "is given in line 1 already" in found
    # Spark's own do not go by case either, and an underscore is a letter to it.
    (found,) = findings(sink=FILES_WITH.format(named("quote", "Quote")))
    assert "Quote is given in line 1 already" in found
    assert findings(sink=FILES_WITH.format(named("qu_ote", "quote"))) == []


def test_a_setting_is_given_once(findings):
    (found,) = findings(more=named("spark.a", "spark.b", "spark.a", element="Setting"))
    assert "Setting: spark.a is given in line 1 already" in found


@pytest.mark.parametrize(
    ("setting", "master", "says"),
    [
        ("driver.memory", "local[2]", "Spark passes over driver.memory"),
        ("driver.memory", "local[2]", "did you mean spark.driver.memory?"),
        ("spark.master", "local[2]", "is set by the element Master"),
        ("spark.remote", "sc://host", "is set by the element Master"),
        ("spark.driver.memory", "sc://host", "has no effect on a running Spark"),
        ("spark.executor.cores", "sc://host", "set it where the Connect server is started"),
    ],
)
def test_a_setting_stands_where_it_has_an_effect(findings, setting, master, says):
    more = f"<Master>{master}</Master>{named(setting, element='Setting')}"
    (found,) = findings(more=more)
    assert says in found


@pytest.mark.parametrize("master", ["local[2]", "spark://host:7077"])
def test_what_a_driver_is_started_with_is_said_of_one_that_the_pipeline_starts(findings, master):
    settings = named("spark.driver.memory", "spark.jars.packages", element="Setting")
    assert findings(more=f"<Master>{master}</Master>{settings}") == []


def test_the_options_that_a_pipeline_sets_itself_are_its_own(findings):
    for name in ("writer", "epoch", "allowEmpty", "rerun", "topic"):
        (found,) = findings(sink=TOPIC_WITH.format(named(name)))
        assert "remove it" in found
