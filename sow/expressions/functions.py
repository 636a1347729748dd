"""The functions of the expression language, and the names of those still to come.

A function is one entry of FUNCTIONS with its example, which is documentation and test at once.
Names are case-blind. A name of AMPS that is not built yet is refused by name; any other unknown
name is answered with the nearest known one.
"""

from dataclasses import dataclass

from sow.errors import BadFilter, ClientError, NotAvailable, clipped
from sow.paths import Scalar
from sow.suggest import nearest


@dataclass(frozen=True, slots=True)
class Constant:
    """A function of no arguments that always gives the same value."""

    value: Scalar
    example: str
    """A filter that is true of the record ``{"open": true}``."""


FUNCTIONS = {
    "TRUE_VALUE": Constant(True, "/open = TRUE_VALUE()"),
    "FALSE_VALUE": Constant(False, "/open != FALSE_VALUE()"),
}

_NAMES = """
    ABS AMPS_INSTANCE_NAME ARRAY_COUNT ARRAY_MAX ARRAY_MIN ARRAY_SUM ARRAY_TO_STRING AVG BOOKMARK
    CEILING CHAR_VALUE CLIENT_NAME COALESCE CONCAT CORRELATION_ID COUNT CRC32 DATE DATE_UTC DAY
    EXP FLOOR GEO_DISTANCE GREATEST IF INSTR INSTR_I LAST_READ LAST_UPDATED LEAST LEFT LENGTH
    LOG LOG2 LOWER LTRIM MAX MESSAGE_SIZE MIN MONTH NAN_VALUE POWER REGEXP_REPLACE REPLACE
    REVERSE RIGHT ROUND RTRIM SIGN SOW_KEY SQRT STREQUAL_I STRFTIME STRPTIME SUBSTR SUM
    TIMEZONEOFFSET TODAY TODAY_UTC TOPIC_NAME TRIM UNIX_TIMESTAMP UPPER VALUE_LOOKUP
    WIDTH_BUCKET YEAR
"""
FUNCTIONS_LATER = frozenset(_NAMES.split())
EXPECTED = f"a path, a literal or a function ({', '.join(FUNCTIONS)})"


def constant_value(name: str, arguments: int, position: int) -> Scalar:
    """The value of a call with that many `arguments`; raises BadFilter or NotAvailable."""
    function = FUNCTIONS.get(name.upper())
    if function is None:
        raise _unknown(name, position)
    if arguments:
        raise BadFilter(
            f"function {name} takes no arguments; write {name}()",
            position=position,
            expected=f"{name}()",
        )
    return function.value


def _unknown(name: str, position: int) -> ClientError:
    if name.upper() in FUNCTIONS_LATER:
        return NotAvailable(
            f"function {name.upper()} is not available yet; those of filters are "
            f"{', '.join(FUNCTIONS)}",
            position=position,
            expected=EXPECTED,
        )
    known = sorted(FUNCTIONS_LATER | FUNCTIONS.keys())
    near = nearest(name, known) or ""
    later = ", which is not available yet" if near in FUNCTIONS_LATER else ""
    hint = f"did you mean {near}{later}?" if near else f"known are {', '.join(FUNCTIONS)}"
    return BadFilter(
        f"there is no function {clipped(name)}; {hint}",
        position=position,
        expected=EXPECTED if later or not near else near,
    )
