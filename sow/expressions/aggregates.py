"""The aggregate functions of projections, over all records of a group.

One entry of AGGREGATES each: signature, result, and examples, which are projections over
`EXAMPLE_RECORDS`, documentation and test at once. NULLs are never counted. How an aggregate is
maintained while records change is in `sow.topic.views.accumulators`.
"""

from typing import Any, NamedTuple

from sow.expressions.function import Example

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


class AggregateFunction(NamedTuple):
    """An aggregate: how it is called, with how many arguments at most, and what it gives."""

    signature: str
    about: str
    null: str
    examples: tuple[Example, ...]
    most: int = 1


AGGREGATES = {
    "ANY": AggregateFunction(
        "ANY(x)",
        "one of the values, by no choice of its own: the smallest, as MIN",
        "NULL if the group has no value",
        (Example("ANY(/sym) AS /any", "ACME"),),
    ),
    "AVG": AggregateFunction(
        "AVG(x)",
        "the average: the exact sum, divided by the number of values and rounded once",
        "NULL if the group has no value; NaN if one is no number",
        (Example("AVG(/qty) AS /avg", 4.0), Example("AVG(/px) AS /avg", 2.75)),
    ),
    "COUNT": AggregateFunction(
        "COUNT(x)",
        "how many records have a value; COUNT(1) counts them all",
        "0 if no record has one",
        (Example("COUNT(/px) AS /n", 2), Example("COUNT(1) AS /n", 3)),
    ),
    "COUNT_DISTINCT": AggregateFunction(
        "COUNT_DISTINCT(x)",
        "how many different values there are; a text that spells a number is that number",
        "0 if no record has one",
        (Example("COUNT_DISTINCT(/sym) AS /n", 2),),
    ),
    "GROUP_CONCAT": AggregateFunction(
        "GROUP_CONCAT(x[, separator])",
        "the different values as one text, in the order in which their records first came; between "
        "them the separator, by default a comma",
        "NULL if the group has no value",
        (
            Example("GROUP_CONCAT(/sym) AS /all", "ACME,BOLT"),
            Example("GROUP_CONCAT(/qty, ' ') AS /all", "4 6 2"),
        ),
        most=2,
    ),
    "MAX": AggregateFunction(
        "MAX(x)",
        "the largest value: texts that spell no number above all numbers",
        "NULL if the group has no value",
        (Example("MAX(/qty) AS /most", 6),),
    ),
    "MIN": AggregateFunction(
        "MIN(x)",
        "the smallest value: texts that spell no number above all numbers",
        "NULL if the group has no value",
        (Example("MIN(/px) AS /least", 2.5),),
    ),
    "STDDEV_POP": AggregateFunction(
        "STDDEV_POP(x)",
        "how far the values lie from their average: the standard deviation of a population",
        "NULL if the group has no value; NaN if one is no number",
        (Example("STDDEV_POP(/px) AS /spread", 0.25),),
    ),
    "STDDEV_SAMP": AggregateFunction(
        "STDDEV_SAMP(x)",
        "the standard deviation of what the values are a sample of",
        "NULL if the group has fewer than two values; NaN if one is no number",
        (Example("STDDEV_SAMP(/qty) AS /spread", 2.0),),
    ),
    "SUM": AggregateFunction(
        "SUM(x)",
        "the sum, exact: rounded once, whatever came and went",
        "NULL if the group has no value; NaN if one is no number",
        (
            Example("SUM(/qty) AS /qty", 12),
            Example("SUM(/px * /qty) / SUM(IF(/px IS NULL, 0, /qty)) AS /vwap", 2.8),
        ),
    ),
    "UNIQUE": AggregateFunction(
        "UNIQUE(x)",
        "the value, if all records that have one have the same",
        "NULL if there are several, or none",
        (Example("UNIQUE(/desk) AS /desk", "rates"), Example("UNIQUE(/sym) AS /sym", None)),
    ),
}
"""By name."""
