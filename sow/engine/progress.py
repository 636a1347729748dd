"""Progress: how far a restart has got, for those that wait for it.

It counts the records that are restored, out of how many; then it names the topic whose indexes and
copies are being built. It measures no time: that needs a clock.
"""


class Progress:
    """How far a restart has got; nothing is known before `begin`."""

    def __init__(self) -> None:
        self.topic = ""
        """The topic whose records are being restored."""
        self.done = 0
        """Records restored so far, from checkpoints and log."""
        self.of = 0
        """How many there are."""
        self.is_settling = False
        """All records are restored; indexes and copies are being built."""

    def begin(self, of: int) -> None:
        """There are `of` records to restore; counting starts at 0."""
        self.topic, self.done, self.of, self.is_settling = "", 0, of, False

    def put_back(self, topic: str, count: int) -> None:
        """`count` more records are restored."""
        self.topic = topic
        # The log is read from the start of an entry, which may be before the first record needed.
        self.done = min(self.done + count, self.of)

    def settle(self, topic: str) -> None:
        """All records are restored; indexes and copies of this topic are built next."""
        self.topic, self.done, self.is_settling = topic, self.of, True
