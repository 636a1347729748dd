"""Private names: a topic that nobody can name but who has made it.

What an aggregated query asks for is a view like any, and it is found, followed and removed like any
topic. Only it is nobody's business: it has no name of its own, its lines say the topic that was
asked, and it is in no list. So its name reads like that topic's and equals nothing but itself: a
text that a client sends never finds it.
"""


class HiddenTopic(str):
    """A text that equals itself alone."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = object.__hash__


def is_hidden(name: str) -> bool:
    """Whether a topic of this name is of no list."""
    return isinstance(name, HiddenTopic)
