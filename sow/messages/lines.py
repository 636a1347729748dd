"""Encodes bodies that are not JSON for a JSON line: as a string, or as base64 in a string."""

from base64 import b64decode, b64encode

import orjson

from sow.errors import BadMessage, clipped


def text_of(body: bytes) -> str:
    """`body` as UTF-8 text; raises BadMessage."""
    try:
        return str(body, "utf-8")
    except UnicodeDecodeError as error:
        raise BadMessage(f"byte {error.start} is not UTF-8 text") from None


def bytes_of(text: str) -> bytes:
    """`text` in UTF-8; raises BadMessage for half a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadMessage(f"character {error.start} is half a surrogate pair") from None


def string_line(body: bytes) -> bytes:
    """The JSON string that holds `body`, which is UTF-8 text."""
    return orjson.dumps(text_of(body))


def string_body(d: bytes) -> bytes:
    """The content of the JSON string `d`, in UTF-8; raises BadMessage."""
    return _string(d).encode()


def base64_line(body: bytes) -> bytes:
    """The JSON string that holds `body` in base64."""
    return b'"' + b64encode(body) + b'"'


def base64_body(d: bytes) -> bytes:
    """The bytes that the JSON string `d` holds in base64; raises BadMessage."""
    try:
        return b64decode(_string(d), validate=True)
    except ValueError as error:
        raise BadMessage(
            f"the body is not base64: {clipped(str(error))}; write it with + and /, padded with ="
        ) from None


def _string(d: bytes) -> str:
    try:
        value = orjson.loads(d)
    except ValueError as error:
        raise BadMessage(f"the body is not a JSON string: {clipped(str(error))}") from None
    if not isinstance(value, str):
        raise BadMessage('the body of this message type must be a JSON string, such as "text"')
    return value
