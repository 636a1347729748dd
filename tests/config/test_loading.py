import pytest

from sow.config import load, loads, require, review
from sow.core.definitions import (
    Configuration,
    ConflatedTopic,
    JournalSettings,
    Limits,
    MessageTypeOptions,
    SessionSettings,
    Topic,
)
from sow.errors import ConfigError

FULL = """<SOWConfig>
<Name>full</Name>
<Listen>0.0.0.0:9007</Listen>
<DataDirectory>/var/lib/sow</DataDirectory>
<TransactionLog>
  <JournalDirectory>log</JournalDirectory><FlushInterval>2ms</FlushInterval>
  <RetentionSize>1GB</RetentionSize><RetentionAge>7d</RetentionAge>
</TransactionLog>
<Sessions><QueueMaxMessages>5k</QueueMaxMessages><QueueMaxBytes>1MB</QueueMaxBytes></Sessions>
<Limits>
  <MessageSize>1MB</MessageSize><FrameSize>2MB</FrameSize><BatchSize>4MB</BatchSize><FilterSize>1KB</FilterSize>
  <FilterDepth>50</FilterDepth><SubscriptionsPerSession>7</SubscriptionsPerSession>
</Limits>
<MessageTypes><MessageType>
  <Name>bar</Name><Module>fix</Module><FieldSeparator>124</FieldSeparator>
</MessageType></MessageTypes>
<SOW>
<TopicDefinition>
  <Topic>orders</Topic><MessageType>bar</MessageType><Key>/11</Key><KeyDomain>d</KeyDomain>
  <FileName>%n.x</FileName><Expiration>1h</Expiration><Index>/44</Index>
  <Duration><Mode>persistent</Mode><FlushInterval>5ms</FlushInterval></Duration>
  <HashIndex><Key>/55</Key><Key>/54</Key></HashIndex><HashIndex><Key>/1</Key></HashIndex>
</TopicDefinition>
<ReplicaDefinition>
  <Topic>orders-C</Topic><MessageType>bar</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
  <Interval>120s</Interval><Filter>/55 = 'A'</Filter><HashIndex><Key>/54</Key></HashIndex>
</ReplicaDefinition>
</SOW>
</SOWConfig>"""


def test_every_element_reaches_its_field():
    assert loads(FULL).configuration == Configuration(
        name="full",
        host="0.0.0.0",
        port=9007,
        data_directory="/var/lib/sow",
        journal=JournalSettings("log", 1024**3, 7 * 86_400_000_000, 2_000),
        sessions=SessionSettings(5_000, 1024**2),
        limits=Limits(1024**2, 2 * 1024**2, 1024, 50, 7, batch_bytes_max=4 * 1024**2),
        message_types=(MessageTypeOptions("bar", "fix", b"|", line=14),),
        topics=(
            Topic(
                name="orders",
                message_type="bar",
                keys=("/11",),
                key_domain="d",
                file_name="orders.bar.x",
                flush_interval_us=5_000,
                expires=True,
                expiration_us=3_600_000_000,
                hash_indexes=(("/55", "/54"), ("/1",)),
                indexes=("/44",),
                line=18,
            ),
            ConflatedTopic(
                name="orders-C",
                message_type="bar",
                underlying="orders",
                interval_us=120_000_000,
                filter="/55 = 'A'",
                hash_indexes=(("/54",),),
                line=24,
            ),
        ),
    )


def test_the_least_file_is_a_name_and_gets_every_default():
    assert loads("<AMPSConfig><Name>x</Name></AMPSConfig>").configuration == Configuration("x")


@pytest.mark.parametrize(
    "form",
    [
        '<Durability FlushInterval="5ms">persistent</Durability>',
        '<Durability FlushInterval="5ms"/>',
        "<Durability><Mode>persistent</Mode><FlushInterval>5ms</FlushInterval></Durability>",
        "<Durability>persistent<FlushInterval>5ms</FlushInterval></Durability>",
    ],
)
def test_durability_takes_a_flush_interval_in_either_form(orders, form):
    topic = orders(form).configuration.topics[0]
    assert (topic.durability, topic.flush_interval_us) == ("persistent", 5_000)


def test_a_relative_data_directory_starts_at_the_file(tmp_path):
    path = tmp_path / "c.xml"
    path.write_text("<AMPSConfig><Name>x</Name></AMPSConfig>")
    assert require(str(path)).data_directory == str(tmp_path / "data")


def test_a_missing_file_is_a_finding(tmp_path, only):
    text = only(load(str(tmp_path / "nope.xml")))
    assert "nope.xml:1: file: cannot be read: No such file or directory" in text


def test_a_required_file_raises_all_of_its_errors(tmp_path):
    path = tmp_path / "c.xml"
    path.write_text("<AMPSConfig>\n<Listn>1</Listn>\n<Admin/>\n<SOW><Topc/></SOW>\n</AMPSConfig>")
    with pytest.raises(ConfigError) as caught:
        require(str(path))
    assert str(caught.value).splitlines() == [
        f"{path}:1: AMPSConfig: has no Name; add <Name>…</Name>",
        f"{path}:2: Listn: is not an element of AMPSConfig; did you mean Listen?",
        f"{path}:4: Topc: is not an element of SOW; did you mean Topic?",
    ]
    assert (caught.value.line, caught.value.element) == (1, "AMPSConfig")


def test_warnings_alone_do_not_stop_a_file(tmp_path):
    path = tmp_path / "c.xml"
    path.write_text("<AMPSConfig><Name>x</Name><Admin/></AMPSConfig>")
    assert require(str(path)).name == "x"
    assert [f.severity for f in load(str(path)).findings] == ["warning"]


def test_a_file_is_reviewed_as_it_is_whether_or_not_it_can_be_used(tmp_path):
    path = tmp_path / "config.xml"
    path.write_text("<SOWConfig>\n<Tpoic/></SOWConfig>")
    reviewed = review(str(path))
    assert (reviewed.file, reviewed.text) == (str(path), path.read_text())
    assert (2, "Tpoic") in {(finding.line, finding.element) for finding in reviewed.findings}
    path.unlink()
    (finding,) = review(str(path)).findings
    assert "cannot be read" in finding.message
