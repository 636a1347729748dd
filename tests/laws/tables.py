"""Time tables: what is done at which moment, and all that clients are sent.

    topic  quotes    Key=/symbol
    copy   quotes-C  of quotes  Interval=1s
    view   sides     of quotes  Group=/side  Field=/side  Field="MAX(/px) AS /px"

    at 0.0  sow_and_subscribe quotes-C  opts=oof
    at 0.0  publish  {"symbol":"ACME","px":10.1}
    at 0.6  publish  {"symbol":"ACME","px":10.3}
    at 1.0  said     p {"symbol":"ACME","px":10.3}
    at 3.0  said     nothing

The head defines topics, copies, views and `sessions`, each setting as the element of config.xml
that it is; a view has a `Group` and a `Field` for each field of its grouping and its rows, and is
of a topic, `of "[a]./x = [b]./y"`, or of one or several `Join` elements. Without a head the world
is that of the harness. Times are seconds. A row without `at` belongs to the moment of the row
above.

A row does something: a command as the wire has it (topic, fields as `name=value`, bodies), or one
of `stop` (the client reads no more), `read` (it reads everything that waits, and goes on reading)
and `conflate` (its queue is conflated now). `publish`, `delta_publish` and `sow_delete` are sent by
a publisher, everything else by the follower; `NAME:` before a row names another one. Where a
command names no topic it is about the first.

Or it is `said`: a line that a follower is sent. Shown are records (`sow`, `p`, `delta`), removals
(by their reason: `match`, `deleted`, `expired`), the ends of turns of live windows (`turn_end`) and
ends (`unsubscribed REASON`, `close`). A table is complete: a line that is sent and not in it is an
error, like one that is in it and not sent.
"""

import difflib
import json
import re
import shlex
from decimal import Decimal
from operator import itemgetter
from typing import NamedTuple
from xml.sax.saxutils import escape

from sow.config import loads
from tests.laws.harness import ORDERS, SECOND, SLOW, World

HEADS = ("topic ", "copy ", "view ", "sessions ")
PUBLISHER = "publisher"
WRITES = ("publish", "delta_publish", "sow_delete")
ROW = re.compile(
    r"(?:at +(?P<time>\d+(?:\.\d{1,6})?) +)?(?:(?P<who>\w+): +)?(?P<verb>(?!at\b)\w+) *(?P<rest>.*)"
)


class Act(NamedTuple):
    """An action: its time, its client, and the row as it is written."""

    at_us: int
    who: str
    verb: str
    rest: str
    row: str


class Sent(NamedTuple):
    """A line that a follower is sent."""

    at_us: int
    who: str
    text: str

    @property
    def row(self):
        who = self.who and f"{self.who}: "
        return f"at {_seconds(self.at_us)}  {who}said  {self.text}"


def play(text, make=World):
    """Run a table in a world that `make` makes; raises AssertionError with both tables."""
    table = Table(text)
    told = Play(table, make).run()
    wanted, got = table.rows(table.told), table.rows(told)
    if wanted != got:
        raise AssertionError(
            "the table has the rows marked -, and the clients were sent those marked +\n"
            + "\n".join(line for line in difflib.ndiff(wanted, got) if not line.startswith("?"))
        )


class Table:
    """A parsed table: `head` as rows of words, `acts` and `told` in order of time."""

    def __init__(self, text):
        self.head, self.acts, self.told = [], [], []
        now_us = 0
        for row in filter(None, map(str.strip, text.splitlines())):
            words = shlex.split(row) if row.startswith(HEADS) else None
            if words:
                self.head.append(words)
                continue
            found = ROW.fullmatch(row)
            if found is None:
                raise ValueError(f"{row!r} is no row of a time table; write at 0.5  VERB …")
            at_us = int(Decimal(found["time"]) * SECOND) if found["time"] else now_us
            if at_us < now_us:
                raise ValueError(f"{row!r} is earlier than the row above it")
            now_us = at_us
            who, verb, rest = found["who"] or "", found["verb"], found["rest"]
            if verb == "said":
                self.told += [Sent(at_us, who, said) for said in _spoken(rest)]
            row = row if found["time"] else f"at {_seconds(at_us)}  {row}"
            self.acts.append(Act(at_us, who, verb, rest, row))

    def configuration(self):
        """The definitions of the head, read as config.xml is."""
        topics, sessions = "", ""
        for kind, *words in self.head:
            if kind == "sessions":
                sessions = f"<Sessions>{_elements(words)}</Sessions>"
            elif kind == "topic":
                topics += f"<Topic>{_named(words[0])}{_elements(words[1:])}</Topic>"
            elif kind == "view":
                topics += _view(*words)
            else:
                name, _of, underlying, *more = words
                original = f"<UnderlyingTopic>{underlying}</UnderlyingTopic>"
                topics += (
                    f"<ConflatedTopic>{_named(name)}{original}{_elements(more)}</ConflatedTopic>"
                )
        text = f"<SOWConfig><Name>t</Name><SOW>{topics}</SOW>{sessions}</SOWConfig>"
        loaded = loads(text)
        if loaded.configuration is None:
            raise ValueError("; ".join(map(str, loaded.findings)))
        return loaded.configuration

    def rows(self, told):
        """The table with these lines as sent: at each moment after the actions."""
        done = [(act.at_us, 0, "", act.row) for act in self.acts if act.verb != "said"]
        said = [(one.at_us, 1, one.who, one.row) for one in told]
        return [row for *_, row in sorted(done + said, key=itemgetter(0, 1, 2))]


class Play:
    """A world and its followers."""

    def __init__(self, table, make):
        self.acts = table.acts
        if table.head:
            configuration = table.configuration()
            self.world = make(*configuration.topics, sessions=configuration.sessions)
        else:
            self.world = make(ORDERS, SLOW)
        self.began_us = self.world.now
        self.topic = self.world.configuration.topics[0].name
        self.clients = {}
        self.stopped = set()
        self.told = []

    def run(self):
        """Carry the table out; returns the lines that were sent, in order."""
        for act in self.acts:
            self._wait_for(self.began_us + act.at_us)
            self._do(act)
            self._listen()
            self.world.check()
        return self.told

    def _wait_for(self, target_us):
        """Go from one due moment to the next, so that each line is read at its own time."""
        world = self.world
        while world.now < target_us:
            world.advance(0)
            due_us = world.due_us()
            until_us = target_us if due_us is None else min(max(due_us, world.now), target_us)
            world.advance(until_us - world.now)
            self._listen()

    def _do(self, act):
        if act.verb == "said":
            return
        client = self._client(PUBLISHER if act.verb in WRITES else act.who)
        if act.verb == "stop":
            self.stopped.add(act.who)
        elif act.verb == "read":
            self.stopped.discard(act.who)
        elif act.verb == "conflate":
            client.session.conflate(self.world.now)
        else:
            client.execute(self._frame(act))

    def _client(self, who):
        if who not in self.clients:
            self.clients[who] = self.world.client()
        return self.clients[who]

    def _frame(self, act):
        """The command as the wire has it: a line, and the bodies that it announces."""
        fields, brace, bodies = act.rest.partition("{")
        words = shlex.split(fields)
        topic = words.pop(0) if words and not re.match(r"\w+=", words[0]) else self.topic
        line = {"c": act.verb, "t": topic, **dict(word.split("=", 1) for word in words)}
        lines = [_compact(document) for document in _documents(brace + bodies)]
        if lines:
            line["n"] = len(lines)
        return "\n".join([json.dumps(line), *lines]).encode()

    def _listen(self):
        """All clients that read get their lines."""
        for who, client in self.clients.items():
            if who in self.stopped:
                continue
            for line in client.lines():
                if line.get("status") == "failure":
                    raise AssertionError(f"refused: {line['reason']}: {line.get('detail')}")
                if text := _shown(line):
                    self.told.append(Sent(self.world.now - self.began_us, who, text))


def _shown(line):
    """A line as tables show it; empty for lines that they do not show."""
    kind = line["c"]
    if kind in ("sow", "p", "oof"):
        word = line.get("reason", "delta" if line.get("delta") else kind)
        return f"{word} {_compact(line['d'])}"
    if kind == "unsubscribed":
        return f"unsubscribed {line['reason']}"
    return kind if kind in ("close", "turn_end") else ""


def _spoken(text):
    """What a row of `said` says: a kind and what belongs to it, over and over."""
    while text := text.strip():
        kind, _, text = text.partition(" ")
        text = text.lstrip()
        if text.startswith("{"):
            document, end = json.JSONDecoder().raw_decode(text)
            yield f"{kind} {_compact(document)}"
            text = text[end:]
        elif kind == "unsubscribed":
            reason, _, text = text.partition(" ")
            yield f"{kind} {reason}"
        elif kind != "nothing":
            yield kind


def _documents(text):
    while text := text.strip():
        document, end = json.JSONDecoder().raw_decode(text)
        yield document
        text = text[end:]


def _compact(document):
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _named(name):
    return f"<Name>{escape(name)}</Name><MessageType>json</MessageType>"


def _view(name, _of, underlying, *words):
    """A view as the element that it is."""
    if "=" in underlying and not underlying.startswith("<"):
        underlying = f"<Join>{underlying}</Join>"
    rows = "".join(
        f"<{section}>{_elements(_those(words, word, 'Field'))}</{section}>"
        for section, word in (("Projection", "Field"), ("Grouping", "Group"))
    )
    more = [word for word in words if not word.startswith(("Field=", "Group="))]
    original = f"<UnderlyingTopic>{underlying}</UnderlyingTopic>"
    return f"<View>{_named(name)}{original}{rows}{_elements(more)}</View>"


def _those(words, name, element):
    """The settings of a name, as settings of an element."""
    return [f"{element}={word.split('=', 1)[1]}" for word in words if word.startswith(f"{name}=")]


def _elements(words):
    """`Element=value` as the elements that they are; a value that is markup stays as it is."""
    pairs = [word.split("=", 1) for word in words]
    return "".join(
        f"<{name}>{value if value.startswith('<') else escape(value)}</{name}>"
        for name, value in pairs
    )


def _seconds(at_us):
    text = f"{Decimal(at_us) / SECOND:.6f}".rstrip("0")
    return text + "0" if text.endswith(".") else text
