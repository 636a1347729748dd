"""The functions of the expression language: one table, and the checks of a call.

A function is one entry of FUNCTIONS. Its signature and examples are documentation and test at
once: docs/functions.md and ``GET /v1/functions`` are generated from the table. Names are
case-insensitive. Functions of AMPS that this version lacks are refused by name; for any other
unknown name the nearest known one is suggested. Bodies are in `…_functions.py`, by subject; what
has none is here: generated code evaluates it, or a literal or a trait of the message stands for it.
Attributes of a message that are not kept are refused with the reason.

The aggregate functions of projections, over all records of a group, are in AGGREGATES, one entry
each: signature, result, and examples, which are projections over
`EXAMPLE_RECORDS`, documentation and test at once. NULLs are never counted. How an aggregate is
maintained while records change is in `sow.topic.views.accumulators`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from conflated_topics.user_texts import nearest
from sow.errors import BadFilter, ClientError, clipped
from sow.expressions.function import ANY, Example, Function, by_name, function
from sow.expressions.message_attributes import Trait
from sow.expressions.nodes import Call, Literal, MessageTrait, Node
from sow.expressions.numeric_functions import ARRAY_FUNCTIONS, DATE_FUNCTIONS, NUMERIC_FUNCTIONS
from sow.expressions.text_functions import TEXT_FUNCTIONS

EXAMPLE_RECORDS: list[dict[str, Any]] = [
    {"desk": "rates", "qty": 4, "px": 2.5, "sym": "ACME"},
    {"desk": "rates", "qty": 6, "px": 3.0, "sym": "BOLT"},
    {"desk": "rates", "qty": 2, "sym": "ACME"},
]
"""The records of the group of all examples, in the order in which they came."""
LAST = "LAST"
"""The kind of a path alone in a projection: the value of the record that changed last. It has no
function to call."""
ORDERLESS = ("COUNT", "SUM", "AVG", "MIN", "MAX")
"""Those that Spark maintains, too (`sow.spark.views`): their value depends neither on
which of the records came first, nor on which of them changed last."""
DEFAULT_SEPARATOR = ","
"""The default separator of GROUP_CONCAT."""


AGGREGATES = by_name(
    function("ANY(x)")(
        "one of the values, by no choice of its own: the smallest, as MIN",
        "NULL if the group has no value",
        Example("ANY(/sym) AS /any", "ACME"),
    ),
    function("AVG(x)")(
        "the average: the exact sum, divided by the number of values and rounded once",
        "NULL if the group has no value; NaN if one is no number",
        Example("AVG(/qty) AS /avg", 4.0),
        Example("AVG(/px) AS /avg", 2.75),
    ),
    function("COUNT(x)")(
        "how many records have a value; COUNT(1) counts them all",
        "0 if no record has one",
        Example("COUNT(/px) AS /n", 2),
        Example("COUNT(1) AS /n", 3),
    ),
    function("COUNT_DISTINCT(x)")(
        "how many different values there are; a text that spells a number is that number",
        "0 if no record has one",
        Example("COUNT_DISTINCT(/sym) AS /n", 2),
    ),
    function("GROUP_CONCAT(x[, separator])")(
        "the different values as one text, in the order in which their records first came; between "
        "them the separator, by default a comma",
        "NULL if the group has no value",
        Example("GROUP_CONCAT(/sym) AS /all", "ACME,BOLT"),
        Example("GROUP_CONCAT(/qty, ' ') AS /all", "4 6 2"),
    ),
    function("MAX(x)")(
        "the largest value: texts that spell no number above all numbers",
        "NULL if the group has no value",
        Example("MAX(/qty) AS /most", 6),
    ),
    function("MIN(x)")(
        "the smallest value: texts that spell no number above all numbers",
        "NULL if the group has no value",
        Example("MIN(/px) AS /least", 2.5),
    ),
    function("STDDEV_POP(x)")(
        "how far the values lie from their average: the standard deviation of a population",
        "NULL if the group has no value; NaN if one is no number",
        Example("STDDEV_POP(/px) AS /spread", 0.25),
    ),
    function("STDDEV_SAMP(x)")(
        "the standard deviation of what the values are a sample of",
        "NULL if the group has fewer than two values; NaN if one is no number",
        Example("STDDEV_SAMP(/qty) AS /spread", 2.0),
    ),
    function("SUM(x)")(
        "the sum, exact: rounded once, whatever came and went",
        "NULL if the group has no value; NaN if one is no number",
        Example("SUM(/qty) AS /qty", 12),
        Example("SUM(/px * /qty) / SUM(IF(/px IS NULL, 0, /qty)) AS /vwap", 2.8),
    ),
    function("UNIQUE(x)")(
        "the value, if all records that have one have the same",
        "NULL if there are several, or none",
        Example("UNIQUE(/desk) AS /desk", "rates"),
        Example("UNIQUE(/sym) AS /sym", None),
    ),
)
"""By name."""


MESSAGE_FUNCTIONS = by_name(
    function("AMPS_INSTANCE_NAME()", stands_for=MessageTrait(Trait.AMPS_INSTANCE_NAME))(
        "the server's name, the `Name` of its configuration",
        "never NULL",
        Example("AMPS_INSTANCE_NAME()", "desk"),
    ),
    function("BOOKMARK()", stands_for=MessageTrait(Trait.BOOKMARK))(
        "the bookmark of the change, as text, in subscriptions, replays and the log",
        "NULL in a query, and where the topic is not in the log",
        Example("BOOKMARK() > 5", True),
    ),
    function("LAST_UPDATED()", stands_for=MessageTrait(Trait.LAST_UPDATED))(
        "when the record was last published, in seconds since 1970 UTC",
        "never NULL",
        Example("LAST_UPDATED()", 1_700_000_000.5),
    ),
    function("MESSAGE_SIZE()", stands_for=MessageTrait(Trait.MESSAGE_SIZE))(
        "how many bytes the record has; after a delta, the whole of it",
        "never NULL",
        Example("MESSAGE_SIZE()", 87),
    ),
    function("SOW_KEY()", stands_for=MessageTrait(Trait.SOW_KEY))(
        "the record's SowKey, as text", "never NULL", Example("SOW_KEY()", "13378342716498349218")
    ),
    function("TOPIC_NAME()", stands_for=MessageTrait(Trait.TOPIC_NAME))(
        "the name of the topic; in the `Filter` and `Enrichment` of a conflated topic that of the "
        "underlying one",
        "never NULL",
        Example("TOPIC_NAME()", "orders"),
    ),
)
"""By name."""
NOT_KEPT = {
    **dict.fromkeys(
        ("CLIENT_ADDRESS", "CLIENT_NAME", "CONNECTION_NAME", "REMOTE_ADDRESS", "USER", "USER_NAME"),
        "the publisher of a record is not kept; have publishers write it into a field",
    ),
    "CORRELATION_ID": "no correlation ids are kept; have publishers write them into a field",
    "LAST_READ": "when a record was last read is not kept; LAST_UPDATED() is when it was published",
    "VALUE_LOOKUP": "no expression reads another topic; have publishers write the value into the "
    "record",
}
"""Attributes of AMPS that are not kept here, by name: the reason and the alternative."""


_SPECIAL = by_name(
    function("COALESCE(value, ...)")(
        "the first value that is not NULL; later ones are not looked at",
        "NULL if all are NULL",
        Example("COALESCE(/none, 'x')", "x"),
        Example("COALESCE(/none, /none)", None),
    ),
    function("IF(condition, then, otherwise)")(
        "`then` where the condition is true, else `otherwise`, a list as a whole; the other is not "
        "looked at",
        "a condition that is NULL counts as not true",
        Example("IF(/qty > 2, 'big', 'small')", "big"),
        Example("IF(/none > 2, 'big', 'small')", "small"),
    ),
    function("TRUE_VALUE()", stands_for=Literal(True))(
        "true", "never NULL", Example("TRUE_VALUE()", True)
    ),
    function("FALSE_VALUE()", stands_for=Literal(False))(
        "false", "never NULL", Example("FALSE_VALUE()", False)
    ),
    function("NAN_VALUE()", stands_for=Literal(math.nan))(
        "the number that is none",
        "never NULL",
        Example("IF(NAN_VALUE() IS NAN, 'none', 'one')", "none"),
    ),
)

FUNCTIONS: dict[str, Function] = dict(
    sorted(
        {
            **_SPECIAL,
            **NUMERIC_FUNCTIONS,
            **TEXT_FUNCTIONS,
            **DATE_FUNCTIONS,
            **ARRAY_FUNCTIONS,
            **MESSAGE_FUNCTIONS,
        }.items()
    )
)

SLIPS = {
    "ABSOLUTE": "ABS(x)",
    "APPROX_COUNT_DISTINCT": "COUNT_DISTINCT(x)",
    "ARRAY_AGG": "GROUP_CONCAT(x, separator)",
    "ARRAY_LENGTH": "ARRAY_COUNT(list)",
    "AVERAGE": "AVG(x)",
    "CARDINALITY": "ARRAY_COUNT(list)",
    "CAST": "the value itself: texts that spell numbers are numbers where one is wanted",
    "CEIL": "CEILING(x)",
    "CHARINDEX": "INSTR(text, part)",
    "CHR": "CHAR_VALUE(byte)",
    "CONCAT_WS": "ARRAY_TO_STRING(list, delimiter, null_text) or CONCAT",
    "CONTAINS": "INSTR(text, part) != 0",
    "CONVERT": "the value itself: texts that spell numbers are numbers where one is wanted",
    "COUNTIF": "SUM(IF(condition, 1, 0))",
    "COUNT_IF": "SUM(IF(condition, 1, 0))",
    "CURDATE": "TODAY()",
    "CURRENT_DATE": "TODAY()",
    "CURRENT_TIMESTAMP": "UNIX_TIMESTAMP()",
    "DATEADD": "t + seconds",
    "DATEDIFF": "t - u: times are seconds",
    "DATE_ADD": "t + seconds",
    "DATE_FORMAT": "STRFTIME(format, seconds)",
    "DATE_SUB": "t - seconds",
    "DATE_TRUNC": "DATE(t) for the day, FLOOR(t / 3600) * 3600 for the hour",
    "ENDSWITH": "x ENDS WITH ('text')",
    "ENDS_WITH": "x ENDS WITH ('text')",
    "EXISTS": "x IS NOT NULL",
    "EXTRACT": "YEAR(t), MONTH(t) or DAY(t)",
    "FIRST": "ANY(x)",
    "FIRST_VALUE": "ANY(x)",
    "FROM_UNIXTIME": "STRFTIME(format, seconds)",
    "GETDATE": "UNIX_TIMESTAMP()",
    "IFNULL": "COALESCE(x, y)",
    "IIF": "IF(condition, then, otherwise)",
    "ISNULL": "x IS NULL",
    "LAST": "the path alone, /x AS /x: the value of the record that changed last",
    "LAST_VALUE": "the path alone, /x AS /x: the value of the record that changed last",
    "LCASE": "LOWER(text)",
    "LEN": "LENGTH(text)",
    "LISTAGG": "GROUP_CONCAT(x, separator)",
    "LN": "LOG(x)",
    "LOCATE": "INSTR(text, part)",
    "LOWERCASE": "LOWER(text)",
    "MEAN": "AVG(x)",
    "MID": "SUBSTR(text, position, length)",
    "MOD": "x % y",
    "NOW": "UNIX_TIMESTAMP()",
    "NULLIF": "IF(x = y, NULL, x)",
    "NVL": "COALESCE(x, y)",
    "POSITION": "INSTR(text, part)",
    "POW": "POWER(base, exponent)",
    "REGEXP_LIKE": "x LIKE 'pattern'",
    "REGEXP_MATCH": "x LIKE 'pattern'",
    "REGEXP_MATCHES": "x LIKE 'pattern'",
    "STARTSWITH": "x BEGINS WITH ('text')",
    "STARTS_WITH": "x BEGINS WITH ('text')",
    "STDDEV": "STDDEV_SAMP(x) or STDDEV_POP(x)",
    "STDEV": "STDDEV_SAMP(x) or STDDEV_POP(x)",
    "STRING_AGG": "GROUP_CONCAT(x, separator)",
    "STRLEN": "LENGTH(text)",
    "STRPOS": "INSTR(text, part)",
    "SUBSTRING": "SUBSTR(text, position, length)",
    "SUMIF": "SUM(IF(condition, x, 0))",
    "SUM_IF": "SUM(IF(condition, x, 0))",
    "TO_CHAR": "STRFTIME(format, seconds), or CONCAT(x)",
    "TRUNC": "IF(x < 0, CEILING(x), FLOOR(x))",
    "TRUNCATE": "IF(x < 0, CEILING(x), FLOOR(x))",
    "UCASE": "UPPER(text)",
    "UPPERCASE": "UPPER(text)",
    "VARIANCE": "POWER(STDDEV_SAMP(x), 2) or POWER(STDDEV_POP(x), 2)",
    "VAR_POP": "POWER(STDDEV_POP(x), 2)",
    "VAR_SAMP": "POWER(STDDEV_SAMP(x), 2)",
}
"""Names of functions in other languages, with the name here."""


def described_functions() -> list[dict[str, object]]:
    """All functions for people to read, aggregates too: name, signature, description, what they
    give where there is no value, and an example with its result, of an aggregate a projection."""
    table = FUNCTIONS | AGGREGATES
    return [
        {
            "name": name,
            "signature": function.signature,
            "description": function.about,
            "null": function.null,
            "example": function.examples[0].expression,
            "result": function.examples[0].result,
        }
        for name, function in sorted(table.items())
    ]


def called(name: str, arguments: Sequence[Node], position: int) -> Node:
    """The call of `name` with `arguments`, or the literal that it comes to.

    Raises BadFilter or NotAvailable at `position`, or at the argument that cannot be.
    """
    upper = name.upper()
    function = FUNCTIONS.get(upper)
    if upper in AGGREGATES:
        return _aggregate(upper, arguments, position)
    if function is None:
        raise _unknown(name, position)
    if not function.least <= len(arguments) <= function.most:
        raise BadFilter(
            f"function {upper} takes {_count(function)}; {len(arguments)} are given: write "
            f"{function.signature}",
            position=position,
            expected=function.signature,
        )
    if function.stands_for is not None:
        return _placed(function.stands_for, position)
    for at in function.literals:
        _check_literal(function, arguments[at])
    return Call(upper, tuple(arguments), position=position)


def _aggregate(name: str, arguments: Sequence[Node], position: int) -> Node:
    """The call of an aggregate; the parser refuses it where none is allowed."""
    function = AGGREGATES[name]
    if not 1 <= len(arguments) <= function.most:
        most = "1 argument" if function.most == 1 else f"1 to {function.most} arguments"
        raise BadFilter(
            f"{name} takes {most}; {len(arguments)} are given: write {function.signature}",
            position=position,
            expected=function.signature,
        )
    for option in arguments[1:]:
        if not (isinstance(option, Literal) and isinstance(option.value, str)):
            raise BadFilter(
                f"{function.signature} wants its separator as a quoted text",
                position=option.position,
                expected="a quoted text",
            )
    return Call(name, tuple(arguments), position=position)


def _placed(node: Node, position: int) -> Node:
    """The node that replaces a call, with the position of the call in all its parts."""
    if isinstance(node, Call):
        node = replace(node, arguments=tuple([_placed(one, position) for one in node.arguments]))
    return replace(node, position=position)


def _check_literal(function: Function, argument: Node) -> None:
    if not (isinstance(argument, Literal) and isinstance(argument.value, str) and argument.value):
        raise BadFilter(
            f"{function.signature} wants its pattern or format as a quoted text that is not empty, "
            "since it is read once and not with every message",
            position=argument.position,
            expected="a quoted text",
        )


def _count(function: Function) -> str:
    if not function.most:
        return "no arguments"
    least, most = function.least, function.most
    if most == ANY:
        return f"{least} arguments or more"
    several = f"{least} argument{'s' if most > 1 else ''}"
    return several if least == most else f"{least} to {most} arguments"


def _unknown(name: str, position: int) -> ClientError:
    upper = name.upper()
    if upper in NOT_KEPT:
        return BadFilter(
            f"there is no {upper} here: {NOT_KEPT[upper]}",
            position=position,
            expected="a function that is available",
        )
    if upper in SLIPS:
        return BadFilter(
            f"there is no function {upper}; write {SLIPS[upper]}",
            position=position,
            expected=SLIPS[upper],
        )
    near = nearest(name, sorted(AGGREGATES.keys() | FUNCTIONS.keys())) or ""
    hint = f"did you mean {near}?" if near else "known are those of docs/functions.md"
    return BadFilter(
        f"there is no function {clipped(name)}; {hint}",
        position=position,
        expected=near or "a function that is available",
    )
