"""Hidden topics: a topic that only its creator can name.

An aggregated query is answered by a view, found, followed and removed like any topic. But it has no
name of its own, its lines carry the name of the topic that the query named, and no list shows it.
So its name reads like that topic's name and equals only itself: a text from a client never finds
it.
"""


class HiddenTopic(str):
    """A text that equals only itself."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = object.__hash__


def is_hidden(name: str) -> bool:
    """Whether no list shows a topic of this name."""
    return isinstance(name, HiddenTopic)
