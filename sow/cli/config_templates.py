"""Configurations to begin with: topics that somebody has named, written as a config.xml.

`sow init` writes one into a file, with comments, and `sow serve --topic` serves one without a file.
Both say the same of the same topics, so that what began without a file goes on with one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

from sow.core.definitions import URL_DEFAULT
from sow.core.paths import parse_path
from sow.errors import ClientError, shown

LISTEN = URL_DEFAULT.partition("://")[2]
DATA_DIRECTORY = "data"
"""As a configuration has it that names none: beside the file, or where `sow serve` was called."""
COPY = "{}-C"
"""What the conflated topic is called that is made of one, as in the shipped config.xml."""


@dataclass(frozen=True, slots=True)
class StarterTopic:
    """A json topic with these paths as its key, and fields of these types by path.

    `interval` is that of a conflated topic made of it; "" is none.
    """

    name: str
    keys: Sequence[str] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    interval: str = ""


def named_topic(text: str) -> StarterTopic:
    """The topic that is meant by ``quotes:/symbol`` or ``orders:/desk,/id``; by ``notes`` one
    whose publishers name each record. Raises ClientError, BadFilter for what is no path."""
    name, colon, key = text.partition(":/")
    if not name or (":" in name and not colon) or name.startswith("/:"):
        raise ClientError(f"{shown(text)} is no topic; write its name and key, as quotes:/symbol")
    keys = [str(parse_path(one)) for one in f"/{key}".split(",")] if colon else []
    return StarterTopic(name, keys)


def document(topics: Sequence[StarterTopic], listen: str = LISTEN, name: str = "sow") -> str:
    """A config.xml with these topics, explained where one would want to change something."""
    sections = [_topic(one) for one in topics]
    sections += [_conflated(one) for one in topics if one.interval]
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<!-- Read it with "sow check", run it with "sow serve"; after a change "sow reload" takes it up.
     Every element there is: docs/configuration.md. -->
<SOWConfig>
  <Name>{escape(name)}</Name>

  <!-- Beyond this machine a server is reached only where it asks who comes: docs/security.md. -->
  <Listen>{escape(listen)}</Listen>

  <!-- Everything on disk; a relative path starts at this file. -->
  <DataDirectory>{DATA_DIRECTORY}</DataDirectory>

  <SOW>
{"".join(sections)}  </SOW>
</SOWConfig>
"""


def _topic(topic: StarterTopic) -> str:
    lines = ["<Topic>", f"  <Name>{escape(topic.name)}</Name>", "  <MessageType>json</MessageType>"]
    if topic.keys:
        lines.append("  <!-- Messages that agree in these fields are of one record. -->")
        lines += [f"  <Key>{escape(key)}</Key>" for key in topic.keys]
    else:
        lines.append("  <!-- No Key: whoever publishes names the record. -->")
    if topic.types:
        lines.append("  <!-- A message with a value of another type is refused. -->")
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
