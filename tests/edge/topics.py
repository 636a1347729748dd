"""The topics that the tests of the doors share: one for each message type, and copies."""

TYPES = ("nvfix", "fix", "bflat", "binary", "string", "int64", "double")

TOPICS = """
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
  <HashIndex><Key>/symbol</Key></HashIndex></Topic>
<Topic><Name>loud</Name><MessageType>json</MessageType><Key>/id</Key>
  <ConflationPolicy>off</ConflationPolicy></Topic>
<Topic><Name>desks</Name><MessageType>json</MessageType><Key>/id</Key>
  <Pattern>^/desk/</Pattern></Topic>
<ConflatedTopic><MessageType>json</MessageType><UnderlyingTopic>desks</UnderlyingTopic>
  <Interval>100ms</Interval><TopicFormat>%n-C</TopicFormat></ConflatedTopic>
<Topic><Name>pairs</Name><MessageType>json</MessageType><Key>/a</Key><Key>/b/c</Key></Topic>
<Topic><Name>short</Name><MessageType>json</MessageType><Key>/id</Key>
  <Expiration>enabled</Expiration></Topic>
<Topic><Name>prices</Name><MessageType>json</MessageType><Key>/id</Key>
  <Series><Retain>limit 100</Retain></Series></Topic>
<Topic><Name>keyless</Name><MessageType>json</MessageType></Topic>
<Topic><Name>memory</Name><MessageType>json</MessageType><Key>/id</Key>
  <Durability>transient</Durability></Topic>
<Topic><Name>/my/orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>nvfix</Name><MessageType>bar</MessageType><Key>/id</Key></Topic>
<Topic><Name>fix</Name><MessageType>fix</MessageType><Key>/11</Key></Topic>
<Topic><Name>bflat</Name><MessageType>bflat</MessageType><Key>/id</Key></Topic>
<Topic><Name>binary</Name><MessageType>binary</MessageType></Topic>
<Topic><Name>string</Name><MessageType>string</MessageType></Topic>
<Topic><Name>int64</Name><MessageType>int64</MessageType></Topic>
<Topic><Name>double</Name><MessageType>double</MessageType></Topic>
<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
  <UnderlyingTopic>orders</UnderlyingTopic><Interval>100ms</Interval></ConflatedTopic>
<ConflatedTopic><Name>dear-C</Name><MessageType>json</MessageType>
  <UnderlyingTopic>orders</UnderlyingTopic><Interval>100ms</Interval>
  <Filter>/price &gt; 100</Filter></ConflatedTopic>
"""

MESSAGE_TYPES = """<MessageTypes><MessageType><Name>bar</Name><Module>nvfix</Module>
<FieldSeparator>124</FieldSeparator></MessageType></MessageTypes>"""
