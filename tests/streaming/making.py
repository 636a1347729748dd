"""Sessions, channels and feeds for tests of delivery, without an engine or a socket."""

import json

from sow.core.definitions import SessionSettings
from sow.expressions import compile_filter
from sow.protocol.replies import LINES
from sow.streaming.channel import DirectChannel
from sow.streaming.conflated_channel import ConflatedChannel
from sow.streaming.feeds import ConflatedFeed, DirectFeed
from sow.streaming.sessions import Session
from sow.streaming.update_encoder import FeedKey, UpdateEncoder
from tests.topic.making import ORDERS, records

SECOND = 1_000_000


class Ended:
    """Remembers what a session gave up."""

    def __init__(self):
        self.subscriptions = []
        self.sessions = []

    def give_up(self, session, name):
        self.subscriptions.append(name)
        return name

    def on_end(self, session):
        self.sessions.append(session)


def session(name="s", ended=None, **settings):
    ended = ended or Ended()
    return Session(
        name, f"secret of {name}", LINES, SessionSettings(**settings), 0, lambda: 0,
        ended.give_up, ended.on_end,
    )  # fmt: skip


def unframed(frame):
    """A frame's text, without the head that WebSocket gives it."""
    return frame[2 if frame[1] < 126 else 4 if frame[1] == 126 else 10 :]


def pulled(of, released=0, now_us=0):
    """The frames that may leave, each as a list of lines."""
    found = []
    while frame := of.pull_alone(released, now_us) or of.pull(released, now_us):
        found.append([json.loads(line) for line in unframed(frame).split(b"\n")])
    return found


def said(of, **how):
    """What record lines say: (reason of an oof, or kind, and document)."""
    return [
        (line.get("reason", line["c"]), line["d"])
        for frame in pulled(of, **how)
        for line in frame
        if "d" in line
    ]


def wording(definition=ORDERS, **key):
    """How a subscription words the updates of a topic."""
    return UpdateEncoder(records(definition), "sub", LINES, FeedKey(**key))


class Subscription:
    """A feed of one topic with one member."""

    def __init__(self, condition=None, interval_us=None, topic=None, **key):
        self.topic = topic or records()
        conflated = interval_us is not None
        self.channel = (
            ConflatedChannel("sub", LINES, interval_us)
            if conflated
            else DirectChannel("sub", LINES)
        )
        kind = ConflatedFeed if conflated else DirectFeed
        self.feed = kind(
            self.channel,
            self.topic,
            FeedKey(condition, interval_us=interval_us, **key),
            compile_filter(condition) if condition else None,
        )
        self.session = session()
        self.channel.join(self.session)

    def on_batch(self, batch, now_us=0):
        """Tell the feed of a batch; returns whether it has something to say."""
        return self.feed.on_batch(batch, now_us)

    def said(self, now_us=0):
        """What its member is sent once everything is delivered."""
        if isinstance(self.channel, ConflatedChannel):
            self.channel.advance(now_us)
        self.channel.flush(0, now_us)
        return said(self.session)
