"""Answers in JSON, as a client reads them who cannot be sure that it is SOW that answers.

An address may be that of another server, of a proxy's own page, or of SOW of another version. Who
reads a field that such an answer does not have gets an error that says so, wherever he reads it, in
place of a KeyError. Values are not looked at as they come: who makes something of them does so
within `understood`, and one of a wrong type is said to be none of SOW's, too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from sow.client.errors import Unreachable, not_sow

SHOWN_CHARS = 40
"""So much of an answer is shown that is none: enough to know a page by."""


class AnsweredFields(dict[str, Any]):
    """An object of an answer; a field that it does not have is an error of the server at `url`."""

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
    """What the server at `url` has answered; raises Unreachable unless it is JSON, and of `kind`
    where one is given."""
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise not_sow(url, _shown(content)) from error
    if kind is not None and not isinstance(found, kind):
        raise not_sow(url, _shown(content))
    return _answered(url, found)


@contextmanager
def understood(url: str) -> Iterator[None]:
    """Make something of an answer of the server at `url`; raises Unreachable where a value of it
    has another type than it should. Nothing but the reading of the answer belongs within."""
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
