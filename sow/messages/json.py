"""JSON messages: a record is one JSON object, kept byte for byte.

The hot path of the server. A batch is validated and decoded as one block: msgspec checks while it
decodes, and this module checks what msgspec accepts in fields that it skips (text that is not
UTF-8, numbers too large for a double, deep nesting). A batch with any suspicion is read again
record by record, which is slower, identifies the bad one, and gives the same result.

Columns of a batch are read in one `decode_lines` call. Few paths become nested msgspec structs that
decode only the named fields of each record, and a generated function that extracts them, with
inline attribute access. That reader supports records with named fields that are scalars or absent;
anything else raises, and the batch is read value by value. With many paths, records are decoded
whole, which is quicker than filling so many attributes, and needs no generated code when a path is
added.
"""

import json
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from math import isfinite
from typing import Any

import msgspec
import orjson

from sow.core.definitions import MessageTypeOptions
from sow.core.lossless_numbers import LosslessNumber
from sow.core.media_types import JSON
from sow.core.paths import Path
from sow.errors import BadMessage, LargeMessage, clipped
from sow.messages.base import Column
from sow.messages.documents import DocumentColumns, bare, document_columns

ColumnsReader = Callable[[bytes, int], list[Column]]
"""Reads columns from so many records joined by line feeds."""
Picker = Callable[[Sequence[object]], list[Column]]
"""Makes columns of records."""
GENERATED_PATHS_MAX = 32
"""Up to so many paths a generated reader is the quicker one, and made within a millisecond."""

# The nested names of a path set: {"order": {"id": None}, "px": None}.
Tree = dict[str, "Tree | None"]

# Beyond these a path is read slowly, so that types nest within reason.
STEPS_MAX = 32

LEAF = str | int | float | bool | None


class UnsuitedError(Exception):
    """These records, or these paths, are not for the fast reader."""


READ_FAILURES = (UnsuitedError, msgspec.MsgspecError, ValueError, RecursionError)
"""Raised by a `ColumnsReader` for records that it cannot read."""


def columns_reader(paths: tuple[Path, ...]) -> ColumnsReader | None:
    """A function of (joined records, how many) that reads `paths`; None if they do not suit."""
    if len(paths) > GENERATED_PATHS_MAX:
        return _reader(dict[str, Any], document_columns(paths))
    found = struct_reader(paths)
    return None if found is None else _reader(*found)


def struct_reader(paths: tuple[Path, ...]) -> tuple[type[msgspec.Struct], Picker] | None:
    """A struct of the fields that few paths name, and what picks their columns out of such
    records; None if they do not suit."""
    if len(paths) > GENERATED_PATHS_MAX:
        return None
    try:
        tree = _tree(paths)
        return _struct(tree), _picker([_attributes(tree, path.steps) for path in paths])
    except (UnsuitedError, ValueError):
        return None


def _reader(kind: Any, pick: Picker) -> ColumnsReader:
    decode_lines = msgspec.json.Decoder(kind).decode_lines

    def read(block: bytes, count: int) -> list[Column]:
        records = decode_lines(block)
        if len(records) != count:
            raise UnsuitedError
        return pick(records)

    return read


def _tree(paths: tuple[Path, ...]) -> Tree:
    """The paths as nested names; a field that is both value and container does not suit."""
    root: Tree = {}
    for path in paths:
        if path.index is not None or len(path.steps) > STEPS_MAX:
            raise UnsuitedError
        branch = root
        for step in path.steps[:-1]:
            below = branch.setdefault(step, {})
            if below is None:
                raise UnsuitedError
            branch = below
        if branch.setdefault(path.steps[-1], None) is not None:
            raise UnsuitedError
    return root


def _struct(tree: Tree) -> type[msgspec.Struct]:
    """A struct of the named fields; its attributes are f0, f1… since names may be anything.

    Raises ValueError for a name that msgspec cannot encode.
    """
    fields = []
    for number, below in enumerate(tree.values()):
        kind = LEAF if below is None else _struct(below) | None
        fields.append((f"f{number}", kind, None))
    names = {f"f{number}": step for number, step in enumerate(tree)}
    return msgspec.defstruct("Record", fields, rename=names, gc=False)


def _attributes(tree: Tree, steps: Sequence[str]) -> list[str]:
    """The attribute names that follow `steps` through the structs of a tree."""
    attributes = []
    for step in steps:
        attributes.append(f"f{list(tree).index(step)}")
        tree = tree[step] or {}
    return attributes


def _picker(chains: Sequence[Sequence[str]]) -> Picker:
    """A generated function from structs to columns, one per chain of attributes."""
    lines = [f"        [{_expression(chain)} for r in records]," for chain in chains]
    source = "\n".join(["def pick(records):", "    return [", *lines, "    ]"])
    namespace: dict[str, Picker] = {}
    exec(source, {}, namespace)
    return namespace["pick"]


def _expression(chain: Sequence[str]) -> str:
    """``r.f0``; or ``None if (x := r.f0) is None else x.f1`` for a field of a field."""
    source, guards = "r", []
    for attribute in chain[:-1]:
        guards.append(f"(x := {source}.{attribute}) is None")
        source = "x"
    value = f"{source}.{chain[-1]}"
    return f"None if {' or '.join(guards)} else {value}" if guards else value


NESTING_MAX = 250
"""Levels of objects and arrays in one message; what the JSON libraries can also write."""

NESTED_BYTES_MIN = 2 * NESTING_MAX
"""A message no longer than this cannot be nested deeper: each level takes two brackets."""

LEVELS_AT_ONCE = 64 * 1024
"""Brackets that are counted in one go, at ten bytes of memory each."""

OPEN, CLOSE = b"{}"
# Digits become 0 and E becomes e, so that a number's shape can be searched for; + is left out.
SHAPE = bytes.maketrans(b"123456789E", b"000000000e")
# A number overflows a double only with an exponent of three digits or some 200 digits in all.
LONG_EXPONENT = b"e000"
LONG_NUMBER = b"0" * 200
EXPONENTS_MAX = 1_000
"""Candidates are checked so often, within a millisecond. Texts of hexadecimal digits are
full of it: where there are more, it is quicker to read the messages one by one."""
# A bracket of either kind becomes a square one; all but brackets and quotes is left out.
ONE_BRACKET = bytes.maketrans(b"{}", b"[]")
BUT_BRACKETS = bytes(set(range(256)).difference(b'{}[]"'))
LINE_BREAK = orjson.Fragment(b"\n")
NEGATIVE_ZERO = re.compile(rb"-0(?![0-9.eE])")
"""It may also be inside a text."""
BRACKET_OPENS = OPEN | 0x20
"""Both opening brackets with this bit of a small letter set; both closing ones are two more."""
LOWER, ZERO, QUOTE, SMALL_E = 0x20, ord("0"), ord('"'), ord("e")
MANY_BYTES_MIN = 8 * 1024
"""From so many bytes on they are quicker looked at by numpy, some operations for all of them, than
by methods of bytes that take one after the other."""
MANY_BYTES_AT_ONCE = 256 * 1024
"""Bytes in one chunk: numpy makes some arrays of this size, which fit into a processor's cache."""
SAMPLE_STEP = 25
"""Each so many-th byte is enough to find a run of digits as long as `LONG_NUMBER`."""
LONG_SAMPLE = b"0" * (200 // SAMPLE_STEP)
BEFORE_A_NUMBER = (b":", b",", b"[", b" ", b"\t", b"")


class Json:
    """The JSON message type."""

    structured = True
    partial = True
    has_only_texts = False
    has_root = False
    enc: str | None = None
    media_type = JSON

    def __init__(self, options: MessageTypeOptions) -> None:
        self.name = options.name

    def decoder(self, paths: tuple[Path, ...]) -> "JsonDecoder":
        """A decoder of these paths."""
        return JsonDecoder(paths)

    def parse(self, body: bytes) -> object:
        """The document, each number with the digits that it was written with; raises BadMessage."""
        try:
            document = _with_numbers(body)
        except READ_FAILURES:
            document = None
        if isinstance(document, dict):
            return document
        _checked(body, 0)
        return _with_numbers(body)

    def encode(self, document: object) -> bytes:
        """Compact JSON; NaN and infinities, which JSON lacks, are written as null."""
        if not isinstance(document, dict):
            raise BadMessage("a JSON message must be an object")
        return json_text(document)

    def to_line(self, body: bytes) -> bytes:
        """The body itself."""
        return body

    def from_line(self, d: bytes) -> bytes:
        """The text itself."""
        return d


def _as_written(text: str) -> float:
    """The number that a fraction is; one that is written otherwise than Python would knows how."""
    double = float(text)
    if not isfinite(double):
        raise ValueError("number out of range")
    # An exponent is written in other ways than Python's: 1e-05 would become 0.00001.
    return double if repr(double) == text and "e" not in text else LosslessNumber(text)


_decode = msgspec.json.Decoder(float_hook=_as_written).decode


def _with_numbers(body: bytes) -> object:
    """The document of a text, each number with its digits."""
    if NEGATIVE_ZERO.search(body):
        # As an integer it would lose its sign; other integers keep their spelling.
        return json.loads(body, parse_int=_whole_as_written, parse_float=_as_written)
    return _decode(body)


def _whole_as_written(text: str) -> int | LosslessNumber:
    return LosslessNumber(text) if text == "-0" else int(text)


def json_text(document: object) -> bytes:
    """A document of any message type as compact JSON; raises BadMessage where there is none."""
    try:
        # Copied: the buffer that orjson hands out keeps more memory than it shows.
        return bytes(memoryview(orjson.dumps(document, default=_with_digits)))
    except TypeError:
        pass  # it holds integers of more than 64 bits, or names that know what they were
    try:
        return msgspec.json.encode(bare(document), enc_hook=_with_all_digits)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadMessage(f"cannot be written as JSON: {error}") from None


def json_bodies(documents: Sequence[object]) -> list[bytes]:
    """Documents as `json_text` writes them, in one go where they can be; raises BadMessage."""
    # A line break between two of them: within compact JSON there is none.
    lines: list[object] = [LINE_BREAK] * (2 * len(documents) - 1)
    lines[::2] = documents
    try:
        text = orjson.dumps(lines, default=_with_digits)
    except TypeError:
        return list(map(json_text, documents))
    return text[1:-1].split(b",\n,") if documents else []


def _with_digits(value: object) -> orjson.Fragment:
    """A number as it was written, for orjson; raises TypeError for anything else."""
    return orjson.Fragment(_digits_of(value))


def _with_all_digits(value: object) -> msgspec.Raw:
    """The same for msgspec."""
    return msgspec.Raw(_digits_of(value))


def _digits_of(value: object) -> bytes:
    if isinstance(value, LosslessNumber):
        return value.text.encode()
    raise TypeError(f"it holds a value of the type {type(value).__name__}")


def read_document(text: bytes, numbers_as_texts: bool = False) -> object:
    """The document of a JSON text, its fractions with all digits; with `numbers_as_texts` they are
    texts. Raises BadMessage."""
    try:
        if _nests_deeply(text):
            raise LargeMessage(f"nested more than {NESTING_MAX} levels deep")
        return (_decode_with_texts if numbers_as_texts else _decode_with_digits)(text)
    except READ_FAILURES as error:
        raise BadMessage(f"not a JSON object: {clipped(str(error))}") from None


def _finite(text: str) -> LosslessNumber:
    number = LosslessNumber(text)
    if not isfinite(number):
        raise ValueError("number out of range, at most 1.8e308 fits")
    return number


_decode_with_texts = msgspec.json.Decoder(float_hook=str).decode
_decode_with_digits = msgspec.json.Decoder(float_hook=_finite).decode


class JsonDecoder:
    """Reads columns by generated code where it can, value by value where it must."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._paths = paths
        self._fast = columns_reader(paths)

    @cached_property
    def _values(self) -> DocumentColumns:
        """Made when there is a doubt."""
        return document_columns(self._paths)

    def columns(self, bodies: Sequence[bytes]) -> list[Column]:
        """One column per path of bodies that `read` has accepted."""
        if self._fast is not None:
            try:
                return self._fast(b"\n".join(bodies), len(bodies))
            except READ_FAILURES:
                pass
        return self._values([msgspec.json.decode(body) for body in bodies])

    def read(self, bodies: Sequence[bytes]) -> tuple[list[bytes], list[Column]]:
        """The bodies without line breaks, and their columns; raises BadMessage."""
        if self._fast is not None and _is_plain(bodies):
            try:
                return list(bodies), self._fast(b"\n".join(bodies), len(bodies))
            except READ_FAILURES:
                pass
        documents = [_checked(body, index) for index, body in enumerate(bodies)]
        return list(map(_in_one_line, bodies)), self._values(documents)


def _in_one_line(body: bytes) -> bytes:
    """A message without line breaks: in valid JSON they are whitespace between tokens."""
    # To look for them is a tenth of the work of leaving them out.
    return body.translate(None, b"\r\n") if b"\n" in body or b"\r" in body else body


def _is_plain(bodies: Sequence[bytes]) -> bool:
    """Whether a typed decode of the batch is all the checking that the bodies still need.

    Each begins with { and ends with } and has no line break, so no value can span two of them:
    if they decode, joined by line breaks, to as many objects, each of them is exactly one.
    """
    if [body for body in bodies if not body or body[0] != OPEN or body[-1] != CLOSE]:
        return False
    block = b"".join(bodies)
    return (
        b"\n" not in block
        and b"\r" not in block
        and (block.isascii() or _is_utf8(block))
        and not _may_overflow(block)
        and (
            len(block) <= NESTED_BYTES_MIN
            or max(map(len, bodies)) <= NESTED_BYTES_MIN
            or not any(map(_nests_deeply, [one for one in bodies if len(one) > NESTED_BYTES_MIN]))
        )
    )


def _is_utf8(block: bytes) -> bool:
    try:
        str(block, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _may_overflow(block: bytes) -> bool:
    """Whether a number in the block may be too large for a double."""
    if len(block) >= MANY_BYTES_MIN and not (_has_exponent(block) or _has_long_number(block)):
        return False
    shape = block.translate(SHAPE, b"+")
    return LONG_NUMBER in shape or (LONG_EXPONENT in shape and _has_long_exponent(shape))


def _has_exponent(block: bytes) -> bool:
    """Whether an E follows a digit, be it in a number or in a text."""
    # Imported late: loading it takes as long as reading a configuration.
    import numpy as np

    for at in range(0, len(block), MANY_BYTES_AT_ONCE):
        # One byte more than the piece: an E and its digit may be on both sides of the boundary.
        octets = np.frombuffer(block[at : at + MANY_BYTES_AT_ONCE + 1], np.uint8)
        is_e = (octets[1:] | LOWER) == SMALL_E
        is_digit = (octets[:-1] - ZERO) < 10  # what is below 0 is above 9 without a sign
        if np.count_nonzero(is_e & is_digit):
            return True
    return False


def _has_long_number(block: bytes) -> bool:
    """Whether there may be so many digits in a row that a number overflows by them alone."""
    return LONG_SAMPLE in block[::SAMPLE_STEP].translate(SHAPE)


def _has_long_exponent(shape: bytes) -> bool:
    """Whether a number may have a long exponent. Texts such as UUIDs are excluded, unless there are
    very many of them."""
    at, left = shape.rfind(LONG_EXPONENT), EXPONENTS_MAX
    while at >= 0:
        left -= 1
        if not left:
            return True
        before = shape[max(0, at - len(LONG_NUMBER)) : at].rstrip(b"0.").removesuffix(b"-")
        if before[-1:] in BEFORE_A_NUMBER:
            return True
        at = shape.rfind(LONG_EXPONENT, 0, at)
    return False


def _nests_deeply(body: bytes) -> bool:
    """Whether a JSON text is nested deeper than allowed; undefined for invalid JSON.

    A wide message has as many brackets as a deep one, so those in strings are left out, and each of
    the others opens or closes a level.
    """
    if len(body) < MANY_BYTES_MIN:
        if body.count(b"{") + body.count(b"[") <= NESTING_MAX:
            return False
        return _is_deep(body)
    # Imported late: loading it takes as long as reading a configuration.
    import numpy as np

    octets = np.frombuffer(body, np.uint8)
    if np.count_nonzero((octets | LOWER) == BRACKET_OPENS) <= NESTING_MAX:
        return False
    return _is_deep(body)


def _is_deep(body: bytes) -> bool:
    """Whether the brackets outside of strings open more levels than are allowed."""
    import numpy as np

    if b"\\" in body:
        body = body.replace(rb"\\", b"").replace(rb"\"", b"")
    left = body.translate(ONE_BRACKET, BUT_BRACKETS)
    level = odd = 0
    for at in range(0, len(left), LEVELS_AT_ONCE):
        octets = np.frombuffer(left[at : at + LEVELS_AT_ONCE], np.uint8)
        quotes = octets == QUOTE
        # A position inside a string has an odd number of quotes before it.
        inside = np.bitwise_xor.accumulate(quotes.view(np.uint8)) ^ odd
        brackets = octets[(inside | quotes) == 0].view(np.int8)
        # Plus one for [ and minus one for ], the neighbours of 92 in ASCII.
        levels = level + np.cumsum(92 - brackets, dtype=np.int64)
        if levels.max(initial=0) > NESTING_MAX:
            return True
        level, odd = int(levels[-1]) if len(levels) else level, int(inside[-1])
    return False


def _checked(body: bytes, index: int) -> object:
    """The document of one body, with everything checked; raises BadMessage with `index`."""
    try:
        document = orjson.loads(body)
        if isinstance(document, dict) and not _nests_deeply(body):
            return msgspec.json.decode(body)
    except READ_FAILURES as error:
        detail, is_deep = str(error), _nests_deeply(body)
    else:
        detail = 'a JSON message must be an object, such as {"id": 1}'
        is_deep = isinstance(document, dict)
    if is_deep:
        detail = f"message {index} is nested more than {NESTING_MAX} levels deep"
        raise LargeMessage(detail, index=index)
    if "infinity" in detail or "out of range" in detail:
        detail = f"number out of range, at most 1.8e308 fits: {detail}"
    raise BadMessage(f"message {index} is not a JSON object: {clipped(detail)}", index=index)
