"""Configurations to start with: a config.xml for given topics.

`sow init` writes one to a file, with comments; `sow serve --topic` serves one without a file. Both
give the same configuration for the same topics, so a server started without a file can continue
with one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

from sow.core.origin_parsing import URL_DEFAULT
from sow.core.paths import parse_path
from sow.errors import ClientError, shown

LISTEN = URL_DEFAULT.partition("://")[2]
DATA_DIRECTORY = "data"
"""The default data directory: beside the file, or in the working directory of `sow serve`."""
COPY = "{}-C"
"""The name of the conflated topic of a topic, as in the shipped config.xml."""


@dataclass(frozen=True, slots=True)
class StarterTopic:
    """A json topic with these paths as its key, and fields of these types by path.

    `interval` is that of its conflated topic; "" means none.
    """

    name: str
    keys: Sequence[str] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    interval: str = ""


def named_topic(text: str) -> StarterTopic:
    """The topic that ``quotes:/symbol`` or ``orders:/desk,/id`` describes; ``notes`` is a topic
    without a Key. Raises ClientError, and BadFilter for an invalid path."""
    name, colon, key = text.partition(":/")
    if not name or (":" in name and not colon) or name.startswith("/:"):
        raise ClientError(f"{shown(text)} is no topic; write its name and key, as quotes:/symbol")
    keys = [str(parse_path(one)) for one in f"/{key}".split(",")] if colon else []
    return StarterTopic(name, keys)


def document(topics: Sequence[StarterTopic], listen: str = LISTEN, name: str = "sow") -> str:
    """A config.xml with these topics, with comments where a user may want to change something."""
    sections = [_topic(one) for one in topics]
    sections += [_conflated(one) for one in topics if one.interval]
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<!-- Check it with "sow check", run it with "sow serve", apply changes with "sow reload".
     All elements: docs/configuration.md. -->
<SOWConfig>
  <Name>{escape(name)}</Name>

  <!-- Without authentication a server listens on this machine only: docs/security.md. -->
  <Listen>{escape(listen)}</Listen>

  <!-- All data on disk; a relative path starts at this file. -->
  <DataDirectory>{DATA_DIRECTORY}</DataDirectory>

  <SOW>
{"".join(sections)}  </SOW>
</SOWConfig>
"""


def _topic(topic: StarterTopic) -> str:
    lines = ["<Topic>", f"  <Name>{escape(topic.name)}</Name>", "  <MessageType>json</MessageType>"]
    if topic.keys:
        lines.append("  <!-- Messages with equal values in these fields update one record. -->")
        lines += [f"  <Key>{escape(key)}</Key>" for key in topic.keys]
    else:
        lines.append("  <!-- No Key: the publisher names the record. -->")
    if topic.types:
        lines.append("  <!-- The server refuses values of another type. -->")
        lines.append("  <Schema>")
        lines += [
            f"    <Field type={quoteattr(kind)}>{escape(path)}</Field>"
            for path, kind in topic.types.items()
        ]
        lines.append("  </Schema>")
    return _indented([*lines, "</Topic>"])


def _conflated(topic: StarterTopic) -> str:
    return _indented(
        [
            "<!-- The newest state of each of these records, at most once an Interval. -->",
            "<ConflatedTopic>",
            f"  <Name>{escape(COPY.format(topic.name))}</Name>",
            "  <MessageType>json</MessageType>",
            f"  <UnderlyingTopic>{escape(topic.name)}</UnderlyingTopic>",
            f"  <Interval>{escape(topic.interval)}</Interval>",
            "</ConflatedTopic>",
        ]
    )


def _indented(lines: Sequence[str]) -> str:
    return "".join(f"    {line}\n" for line in lines)
