"""JSON answers of a server that may not be SOW.

The address may be that of another server, of a proxy's error page, or of another version of SOW.
Reading a field that an answer does not have raises an error that explains this, instead of a
KeyError. Types of values are not checked in advance: code that converts them runs within
`understood`, which reports a value of a wrong type in the same way.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from sow.client.errors import Unreachable, not_sow

SHOWN_CHARS = 40
"""Characters of an invalid answer that an error shows: enough to recognise a page."""


class AnsweredFields(dict[str, Any]):
    """An object of an answer; a missing field is an error of the server at `url`."""

    def __init__(self, url: str, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self._url = url

    def __missing__(self, name: str) -> Any:
        raise Unreachable(
            f"the answer of {self._url} has no {name!r}: it is of another version, or no SOW"
        )


def decoded(
    url: str, content: bytes, kind: type[list[Any]] | type[dict[str, Any]] | None = None
) -> Any:
    """The decoded answer of the server at `url`; raises Unreachable unless it is JSON, and of
    `kind` if one is given."""
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise not_sow(url, _shown(content)) from error
    if kind is not None and not isinstance(found, kind):
        raise not_sow(url, _shown(content))
    return _answered(url, found)


@contextmanager
def understood(url: str) -> Iterator[None]:
    """Read values of an answer of the server at `url`; raises Unreachable if one has a wrong type.
    Only code that reads the answer belongs in the block."""
    try:
        yield
    except (TypeError, ValueError, AttributeError) as error:
        raise Unreachable(
            f"the answer of {url} has a value of a wrong type: it is of another version, or no SOW"
        ) from error


def _answered(url: str, found: Any) -> Any:
    if isinstance(found, dict):
        return AnsweredFields(url, {name: _answered(url, value) for name, value in found.items()})
    if isinstance(found, list):
        return [_answered(url, value) for value in found]
    return found


def _shown(content: bytes) -> str:
    text = " ".join(content[: 4 * SHOWN_CHARS].decode(errors="replace").split())
    return repr(text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…") if text else ""
