"""Keys: which record a message is about.

A record's *identity* is the text of its key values; within a topic no two records have the same.
Its *SowKey* is the unsigned 64-bit number that clients see: a pure function of the key domain
and the identity, so that it is the same after a restart, in a conflated copy and in Spark
(`sow_key` says how to compute it anywhere). Topics without key fields take the publisher's own
text instead, which `check_explicit_key` judges. Nothing here knows how a record is stored.
"""

import re
import sys
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b

from sow.core.lossless_numbers import LosslessNumber
from sow.core.paths import Path, Value
from sow.errors import BadMessage, ClientError, shown

# Integral doubles up to here are exact, so that 1 and 1.0 are the same key.
EXACT_DOUBLE = 2**53
KEY_SEPARATOR = "\x1f"
_ESCAPE = re.compile(r"\\\\|\\x1f")
"""How a text of several writes a backslash or the separator."""
_VALUE = re.compile(r'"((?:[^"]|"")*)"(?=,|\Z)|(?!")([^,]*)')
"""One of the values that name a record: in double quotes, or up to the next comma."""
EXPLICIT_KEY = re.compile(r"[!-~]{1,512}\Z")
SOW_KEY_BYTES = 8
"""Clients and Spark keep SowKeys in 64 bits."""
WRITTEN_ONE_WAY = frozenset({int, str, type(None)})
"""Kinds of values whose equal values have equal texts."""
DOMAINS_KEPT = 128
"""Begun hashes that are kept, some 400 bytes each: of the topics that are published to the most."""


def identities(paths: Sequence[Path], columns: Sequence[Sequence[Value]]) -> list[str]:
    """The identities of a batch, one per record, from its key columns in the order of `paths`.

    A single key's text is the identity itself. Several are joined by U+001F, each with ``\\``
    written ``\\\\`` and U+001F written ``\\x1f``. Raises BadMessage, naming field and index, for
    the first record whose key is absent, null, a container or not unique.
    """
    if len(paths) == 1:  # as nearly all topics have it
        return _texts(paths[0], columns[0])
    texts: list[list[str]] = []
    errors: list[BadMessage] = []
    for path, column in zip(paths, columns, strict=True):
        try:
            texts.append(_texts(path, column))
        except BadMessage as error:
            errors.append(error)
    if errors:
        raise min(errors, key=lambda error: error.index)
    return joined(texts)


def joined(texts: Sequence[list[str]]) -> list[str]:
    """Identities from the texts of their values, a column for each field: a single text is the
    identity itself, several are joined."""
    if len(texts) == 1:
        return texts[0]
    return list(map(KEY_SEPARATOR.join, zip(*map(_escaped, texts), strict=True)))


def parted(identity: str, count: int) -> list[str]:
    """The texts of the `count` values that an identity is made of: what was `joined`."""
    if count == 1:
        return [identity]
    return [_ESCAPE.sub(_unescaped, text) for text in identity.split(KEY_SEPARATOR)][:count]


def values_of(text: str) -> list[str]:
    """The texts of key values between commas: a value with a comma, or one that begins with a
    double quote, stands in double quotes, and a quote in it is doubled. Blanks count. Raises
    ClientError for an open quote."""
    values, start = [], 0
    while start <= len(text):
        found = _VALUE.match(text, start)
        if found is None:
            raise ClientError(
                f"key={shown(text)}: a value that begins with a double quote ends with one, before "
                'a comma or the end; write a quote inside it twice, such as "5"" tube, long"'
            )
        quoted, bare = found.groups()
        values.append(bare if quoted is None else quoted.replace('""', '"'))
        start = found.end() + 1
    return values


def _texts(path: Path, column: Sequence[Value]) -> list[str]:
    kinds = set(map(type, column))
    if kinds == {str}:
        return list(column)  # type: ignore[arg-type]  # just checked, in the quickest way
    if kinds == {int}:
        return list(map(str, column))
    return [
        value if type(value) is str else _text(value, path, index)
        for index, value in enumerate(column)
    ]


def key_text(value: Value) -> str | None:
    """The text that a value is in a key; None for one that can be no key: absent, or several."""
    match value:
        case bool():
            return "true" if value else "false"
        case LosslessNumber() if not value.is_double:
            return value.text  # two of them that share a double are two records
        case float() if value.is_integer() and abs(value) <= EXACT_DOUBLE:
            return str(int(value))
        case int() | float():
            return repr(value)
        case str():
            return str(value)
    return None


def are_written_alike(column: Sequence[Value], other: Sequence[Value]) -> bool:
    """Whether two columns have the same values, written the same, as equal doubles need not be:
    some may be that this does not see."""
    return column == other and {*map(type, column), *map(type, other)} <= WRITTEN_ONE_WAY


def _text(value: Value, path: Path, index: int) -> str:
    """The text of a key value that is not a plain str; `path` and `index` are for the error."""
    text = key_text(value)
    if text is not None:
        return text
    why = "is missing, null or a container"
    if isinstance(value, list):
        why = f"has {len(value)} values"
    raise BadMessage(
        f"message {index}: key field {path} {why}; a key needs one string, number or boolean",
        index=index,
    )


def _escaped(texts: list[str]) -> list[str]:
    everything = "".join(texts)
    if "\\" not in everything and KEY_SEPARATOR not in everything:
        return texts
    return [text.replace("\\", "\\\\").replace(KEY_SEPARATOR, "\\x1f") for text in texts]


def _unescaped(escape: re.Match[str]) -> str:
    return "\\" if escape[0] == "\\\\" else KEY_SEPARATOR


def sow_key(domain: str, identity: str) -> int:
    """The SowKey, unsigned 64-bit: the 8-byte BLAKE2b digest, read big-endian, of the UTF-8 text
    of `domain`, U+001F and `identity`.

    Any language with BLAKE2b computes the same (digest size 8, no key, salt or personalisation;
    lone surrogates encode as three bytes each). Its decimal digits are what clients are sent.
    """
    text = f"{domain}{KEY_SEPARATOR}{identity}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=SOW_KEY_BYTES).digest(), "big")


def sow_keys(domain: str, identities: Iterable[str]) -> "array[int]":
    """The SowKeys of many identities; what they begin with is hashed once for all."""
    begin = _begun(domain).copy
    digests = []
    for identity in identities:
        digest = begin()
        digest.update(identity.encode("utf-8", "surrogatepass"))
        digests.append(digest.digest())
    keys = array("Q", b"".join(digests))
    if sys.byteorder == "little":
        keys.byteswap()
    return keys


@lru_cache(maxsize=DOMAINS_KEPT)
def _begun(domain: str) -> blake2b:
    """The hash of what all keys of a domain begin with; to be copied, never updated."""
    beginning = f"{domain}{KEY_SEPARATOR}".encode("utf-8", "surrogatepass")
    return blake2b(beginning, digest_size=SOW_KEY_BYTES)


def check_explicit_key(text: str) -> str:
    """`text`, if it can serve as a publisher's own SowKey; raises ClientError if it cannot."""
    if EXPLICIT_KEY.match(text):
        return text
    shown = text if len(text) <= 40 else text[:40] + "…"
    raise ClientError(
        f"{shown!r} cannot be a SowKey; write 1 to 512 printable ASCII characters without spaces,"
        " such as letters, digits, + / = - and _"
    )
