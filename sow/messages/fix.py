"""FIX and NVFIX messages: ``tag=value`` fields, each followed by a separator byte.

FIX has numbers for tags and NVFIX names; to this server they are the same. A tag may hold
anything but ``=`` and the separator, a value anything but the separator, and both are UTF-8. A
tag that comes more than once has the list of its values. Messages are flat and all values text;
header and trailer fields are fields like any other, and checksums are not verified.
"""

from collections.abc import Sequence

from sow.core.definitions import MessageTypeOptions
from sow.errors import BadMessage, ConfigError, shown
from sow.messages.base import bytes_of, text_of
from sow.messages.documents import VALUES_MAX, TextType

Fields = dict[str, str | list[str]]


class Fix(TextType):
    """The FIX and NVFIX message types; the separator comes from the configuration."""

    has_only_texts = True

    def __init__(self, options: MessageTypeOptions) -> None:
        separator = options.field_separator
        if len(separator) != 1 or separator == b"=" or separator >= b"\x80":
            raise ConfigError(
                f"a field separator cannot be {separator!r}; write the code of one ASCII"
                " character other than '=', such as 1 (SOH) or 124 (|)",
                line=options.line,
                element="FieldSeparator",
            )
        super().__init__(options)
        self._separator = separator.decode()

    def arriving(self, body: bytes) -> Fields:
        """The fields of a message that has not too many; raises BadMessage."""
        if body.count(self._separator.encode()) > VALUES_MAX:
            raise BadMessage(
                f"it has more than {VALUES_MAX:,} fields, which are all read in one step; send "
                "several messages"
            )
        return self.parse(body)

    def parse(self, body: bytes) -> Fields:
        """The fields in order; raises BadMessage with the offset of a bad one."""
        text = text_of(body)
        fields = text.split(self._separator)
        if not fields[-1]:
            del fields[-1]
        try:
            pairs = [field.split("=", 1) for field in fields]
            document: Fields = {tag: value for tag, value in pairs}  # noqa: C416  (checks pairs)
        except ValueError:
            raise self._bad_field(fields) from None
        if "" in document:
            raise self._bad_field(fields)
        return document if len(document) == len(pairs) else _gathered(pairs)

    def _bad_field(self, fields: list[str]) -> BadMessage:
        """The error for the first field without ``=`` or without a tag."""
        offset = 0
        for field in fields:
            if field.find("=") < 1:
                break
            offset += len(field.encode()) + 1
        shown = field if len(field) <= 40 else field[:40] + "…"
        return BadMessage(
            f"the field {shown!r} at byte {offset} is not tag=value"
            f" (fields end with {self._separator!r})"
        )

    def stored(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Bodies with their final separator, which publishers may leave out."""
        separator = self._separator.encode()
        return [one if not one or one.endswith(separator) else one + separator for one in bodies]

    def encode(self, document: object) -> bytes:
        """A field for each value; null is left out, true and false are Y and N."""
        if not isinstance(document, dict):
            raise BadMessage(f"a {self.name} message must be an object of tags and values")
        fields = [
            self._field(tag, value)
            for tag, values in document.items()
            for value in (values if isinstance(values, list) else [values])
            if value is not None
        ]
        return bytes_of("".join(fields))

    def _field(self, tag: object, value: object) -> str:
        if isinstance(value, bool):
            value = "Y" if value else "N"
        if not isinstance(value, str | int | float):
            raise BadMessage(f"tag {shown(str(tag))}: a {self.name} field holds text or a number")
        field = f"{tag}={value}{self._separator}"
        if not tag or "=" in str(tag) or field.index(self._separator) != len(field) - 1:
            raise BadMessage(
                f"tag {shown(str(tag))}: a tag cannot be empty or hold '=', and neither tag nor "
                f"value can hold the separator {self._separator!r}"
            )
        return field


def _gathered(pairs: list[list[str]]) -> Fields:
    """The document of fields, some of them repeated."""
    lists: dict[str, list[str]] = {}
    for tag, value in pairs:
        lists.setdefault(tag, []).append(value)
    return {tag: values if len(values) > 1 else values[0] for tag, values in lists.items()}
