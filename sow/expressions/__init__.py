"""Expressions: SQL-92 conditions over the fields of a record, and values made of them.

``text → parser → nodes → generated Python``. `compile_filter` gives a Filter, which answers for
whole batches of columns; `compile_fields` what makes fields; `parse_order_by` reads the order of a
query. Nothing here knows where values come from.
"""

from sow.expressions.access import (
    Access,
    AccessTerm,
    PatternTerm,
    RangeTerm,
    ValueTerm,
    access_of,
    find_access,
)
from sow.expressions.compare import MIRRORED, as_number, as_text, compare, elements
from sow.expressions.fields import Fields, compile_fields, nested
from sow.expressions.filters import (
    Filter,
    compile_filter,
    compile_term,
    equalities_of,
    paths_in,
)
from sow.expressions.functions import FUNCTIONS, described_functions
from sow.expressions.nodes import (
    Affix,
    And,
    Arithmetic,
    Between,
    Call,
    Compare,
    Identifier,
    In,
    IsNan,
    IsNull,
    Like,
    Literal,
    Node,
    Not,
    Or,
    walk,
)
from sow.expressions.numeric_functions import NUMERIC_FUNCTIONS
from sow.expressions.ordering import OrderTerm, parse_order_by, sort_key
from sow.expressions.parser import STATES, parse
from sow.expressions.pattern_sets import PatternSets
from sow.expressions.text_cache import TextCache

__all__ = [
    "FUNCTIONS",
    "MIRRORED",
    "NUMERIC_FUNCTIONS",
    "STATES",
    "Access",
    "AccessTerm",
    "Affix",
    "And",
    "Arithmetic",
    "Between",
    "Call",
    "Compare",
    "Fields",
    "Filter",
    "Identifier",
    "In",
    "IsNan",
    "IsNull",
    "Like",
    "Literal",
    "Node",
    "Not",
    "Or",
    "OrderTerm",
    "PatternSets",
    "PatternTerm",
    "RangeTerm",
    "TextCache",
    "ValueTerm",
    "access_of",
    "as_number",
    "as_text",
    "compare",
    "compile_fields",
    "compile_filter",
    "compile_term",
    "described_functions",
    "elements",
    "equalities_of",
    "find_access",
    "nested",
    "parse",
    "parse_order_by",
    "paths_in",
    "sort_key",
    "walk",
]
