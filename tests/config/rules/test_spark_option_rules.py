"""Options of Spark's own formats: what it would refuse later is found, and all else left to it."""

import pytest

from sow.config.rules.spark_option_rules import FORMAT_OPTIONS
from tests.cases import all_cases


@pytest.fixture
def findings(instance):
    def of(kind, is_sink=False, **options):
        needs = "" if kind in ("kafka", "rate") else "<Path>p</Path>"
        given = "".join(
            f"<Option Name='{name.replace('__', '.')}' Value='{text}'/>"
            for name, text in options.items()
        )
        one = f"<Format>{kind}</Format>{needs}{given}"
        source = "<Source><Format>sow</Format><Topic>orders</Topic></Source>"
        parts = [source, f"<Sink>{one}</Sink>"]
        if not is_sink:
            parts = [f"<Source>{one}</Source>", "<Sink><Topic>orders</Topic></Sink>"]
        loaded = instance(
            "<SOW><Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
            f"</SOW><Pipelines><Pipeline><Name>p</Name>{''.join(parts)}</Pipeline></Pipelines>"
        )
        return [str(found) for found in loaded.findings]

    return of


BROKERS = {"kafka__bootstrap__servers": "a:9092, b:9092"}


@all_cases(
    ("kind", "options", "says"),
    [
        ("parquet", {"compression": "snapy"}, "it must be none or uncompressed or snappy"),
        ("parquet", {"compression": "snapy"}, "did you mean snappy?"),
        ("parquet", {"compression": "bzip2"}, "compression of parquet is 'bzip2'"),
        ("parquet", {"mergeSchema": "yes"}, "mergeSchema of parquet is 'yes'; it must be true or"),
        ("parquet", {"maxFilesPerTrigger": "none"}, "it must be a whole number, 1 or more"),
        ("csv", {"compression": "zstd"}, "it must be none or uncompressed or bzip2 or deflate"),
        ("csv", {"Header": "yes"}, "header of csv is 'yes'; it must be true or false"),
        ("csv", {"quote": "||"}, "quote of csv is '||'; it must be one character"),
        ("csv", {"maxCharsPerColumn": "-2"}, "1 or more, or -1 for no bound"),
        ("json", {"mode": "failfats"}, "did you mean failfast?"),
        ("json", {"samplingRatio": "2"}, "it must be a number above 0, up to 1"),
        ("json", {"primitivesAsString": "1"}, "it must be true or false"),
        ("rate", {"rowsPerSecond": "0"}, "rowsPerSecond of rate is '0'; it must be a whole"),
        ("kafka", {}, "kafka has no address; add the Option kafka.bootstrap.servers"),
        ("kafka", BROKERS, "kafka has no topic to read; add the Option subscribe"),
        (
            "kafka",
            {**BROKERS, "subscribe": "a", "assign": '{"a":[0]}'},
            "what kafka reads is named by subscribe and assign; keep one of them",
        ),
        (
            "kafka",
            {"kafka__bootstrap__servers": "broker", "subscribe": "a"},
            "it must be addresses such as broker1:9092,broker2:9092",
        ),
        (
            "kafka",
            {**BROKERS, "subscribe": "a", "startingOffsets": "first"},
            "it must be earliest or latest or a JSON object",
        ),
    ],
)
def test_what_spark_would_refuse_later_is_found(findings, kind, options, says):
    (found,) = findings(kind, **options)
    assert says in found


@pytest.mark.parametrize("is_sink", [False, True])
def test_a_wrong_compression_is_found_wherever_it_is_written(findings, is_sink):
    (found,) = findings("parquet", is_sink, compression="gz")
    assert "Option: compression of parquet is 'gz'; it must be" in found


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("parquet", {"COMPRESSION": "ZSTD", "pathGlobFilter": "*.parquet"}),
        ("csv", {"compression": "org.example.Codec", "sep": "||", "quote": "|", "nullValue": "-"}),
        ("json", {"samplingRatio": "0.5", "timestampFormat": "yyyy"}),
        ("kafka", {**BROKERS, "subscribe": "a,b", "startingOffsets": '{"a":{"0":-2}}'}),
        ("orc", {"compression": "snapy"}),
        ("org.example.Mine", {"compression": "snapy", "header": "maybe"}),
    ],
)
def test_what_spark_takes_or_alone_knows_is_left_to_it(findings, kind, options):
    assert findings(kind, **options) == []


def test_a_sink_of_kafka_needs_its_brokers_alone(findings):
    assert findings("kafka", True, **BROKERS, topic="t") == []
    (found,) = findings("kafka", True, topic="t")
    assert "kafka has no address" in found


def test_each_table_is_of_a_format_that_has_rules():
    from sow.core.pipelines import KNOWN_FORMATS

    assert set(FORMAT_OPTIONS) == set(KNOWN_FORMATS) - {"sow"}
