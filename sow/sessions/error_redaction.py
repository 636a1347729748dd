"""Telling: what a user is told of an error is about no topic but those that he sees.

An error is worded where it is raised, by whoever knows all topics. At the door it is known who
asks: there suggestions are made anew of what he may see, and of topics that others are made of he
is not told the names. Where nobody is asked who he is, errors stay as they are.
"""

from collections.abc import Iterable, Mapping
from itertools import islice

from sow.core.suggest import no_topic
from sow.errors import InvalidTopic, SowError, UnknownTopic
from sow.security.authorization import Permissions

LOOKED_AT_MAX = 1_000
"""Names that are asked whether the user sees them: some microseconds each, once."""
COMPARED_MAX = 200
"""Comparing a mistyped name takes some 10 us a name."""


def redact_error(
    error: SowError, rights: Permissions, names: Iterable[str], patterns: Mapping[str, str]
) -> SowError:
    """The same error, worded for who has these rights; `names` are those of all topics, `patterns`
    those by which topics are made."""
    if rights.is_open:
        return error
    if isinstance(error, UnknownTopic) and error.wanted:
        seen = (name for name in islice(names, LOOKED_AT_MAX) if rights.sees(name))
        known = [*islice(seen, COMPARED_MAX)]
        visible = {name: text for name, text in patterns.items() if rights.sees(name)}
        error.detail = no_topic(error.wanted, known, visible)
    elif isinstance(error, InvalidTopic) and not all(map(rights.sees, error.others)):
        error.detail = error.alone
    return error
