"""Progress: how far a restart has got, for those who wait for it.

It counts the records that were put back, of how many there are; and once all are, says of whose
indexes and copies they are made into. How long that takes is for whoever has a clock.
"""


class Progress:
    """How far a restart has got; nothing is known before `begin`."""

    def __init__(self) -> None:
        self.topic = ""
        """Whose records it is at."""
        self.done = 0
        """Records that were put back, from checkpoints and log."""
        self.of = 0
        """How many there are."""
        self.is_settling = False
        """All are back, and indexes and copies are made of them."""

    def begin(self, of: int) -> None:
        """There are `of` records to put back; whatever was done before counts no more."""
        self.topic, self.done, self.of, self.is_settling = "", 0, of, False

    def put_back(self, topic: str, count: int) -> None:
        """So many records more are back."""
        self.topic = topic
        # A log is read from the beginning of an entry, which may be before what is wanted.
        self.done = min(self.done + count, self.of)

    def settle(self, topic: str) -> None:
        """All records are back; what is made of this topic's comes next."""
        self.topic, self.done, self.is_settling = topic, self.of, True
