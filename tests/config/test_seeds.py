"""Conflated topics as published examples of AMPS configurations write them."""


def base(kind: str, more: str = "") -> str:
    return (
        f"<Topic><Name>FastPublishTopic</Name><MessageType>{kind}</MessageType>"
        f"<Key>/id</Key>{more}</Topic>"
    )


def test_an_example_with_a_filter_parses_as_written(sow):
    loaded = sow(
        base("nvfix")
        + """<ConflatedTopic>
    <Topic>FastPublishTopic-C</Topic>
    <MessageType>nvfix</MessageType>
    <UnderlyingTopic>FastPublishTopic</UnderlyingTopic>
    <Interval>5s</Interval>
    <Filter>/region = 'A'</Filter>
</ConflatedTopic>"""
    )
    topic = loaded.configuration.topics[1]
    assert not loaded.findings
    assert (topic.name, topic.interval_us, topic.filter) == (
        "FastPublishTopic-C",
        5_000_000,
        "/region = 'A'",
    )


def test_an_example_with_a_hash_index_parses_as_written(sow):
    loaded = sow(
        base("json")
        + """<ConflatedTopic>
    <Topic>LongIntervalTopic-C</Topic>
    <MessageType>json</MessageType>
    <UnderlyingTopic>FastPublishTopic</UnderlyingTopic>
    <Interval>120s</Interval>
    <HashIndex>
       <Key>/order/status</Key>
    </HashIndex>
</ConflatedTopic>"""
    )
    topic = loaded.configuration.topics[1]
    assert not loaded.findings
    assert (topic.interval_us, topic.hash_indexes) == (120_000_000, (("/order/status",),))


def test_an_example_over_a_pattern_without_a_format_says_what_to_add(sow):
    loaded = sow(
        """<Topic><Name>TheRegexTopic</Name><MessageType>bflat</MessageType>
    <Key>/id</Key><Pattern>^/the/</Pattern></Topic>
<ConflatedTopic>
   <Topic>ConflateUnderlyingRegex</Topic>
   <MessageType>bflat</MessageType>
   <UnderlyingTopic>TheRegexTopic</UnderlyingTopic>
   <Interval>20s</Interval>
</ConflatedTopic>"""
    )
    (copy,) = loaded.errors
    assert "add <TopicFormat>%n-C</TopicFormat>" in copy.instead
