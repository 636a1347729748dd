"""Redaction of errors: an error mentions no topic that its user may not see.

An error is raised where all topics are known. Before it is sent to a user, its suggestions are made
again from the topics that the user may see, and the names of dependent topics are left out. Without
authentication errors stay as they are.
"""

from collections.abc import Iterable, Mapping
from itertools import islice

from sow.core.suggest import no_topic
from sow.errors import InvalidTopic, SowError, UnknownTopic
from sow.security.authorization import Permissions

LOOKED_AT_MAX = 1_000
"""Maximum number of names checked for visibility: some microseconds each, once."""
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
