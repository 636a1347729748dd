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
from sow.expressions.aggregates import AGGREGATES, LAST, ORDERLESS
from sow.expressions.compare import MIRRORED, as_number, as_text, compare, elements
from sow.expressions.fields import Fields, Known, compile_fields, nested
from sow.expressions.filters import (
    Filter,
    check_deterministic,
    check_fields_alone,
    compile_filter,
    compile_term,
    equalities_of,
    paths_in,
    sow_keys_in,
    traits_in,
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
    MessageTrait,
    Node,
    Not,
    Or,
    Source,
    walk,
)
from sow.expressions.numeric_functions import NUMERIC_FUNCTIONS
from sow.expressions.ordering import OrderTerm, Rank, parse_order_by, sort_key
from sow.expressions.parser import STATES, make_parser, parse, parse_projected
from sow.expressions.pattern_sets import PatternSets
from sow.expressions.projections import Aggregate, Argument, Projection, compile_projection
from sow.expressions.text_cache import TextCache
from sow.expressions.traits import NO_TRAITS, UNSTEADY, MessageColumns, Trait, seconds

__all__ = [
    "AGGREGATES",
    "FUNCTIONS",
    "LAST",
    "MIRRORED",
    "NO_TRAITS",
    "NUMERIC_FUNCTIONS",
    "ORDERLESS",
    "STATES",
    "UNSTEADY",
    "Access",
    "AccessTerm",
    "Affix",
    "Aggregate",
    "And",
    "Argument",
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
    "Known",
    "Like",
    "Literal",
    "MessageColumns",
    "MessageTrait",
    "Node",
    "Not",
    "Or",
    "OrderTerm",
    "PatternSets",
    "PatternTerm",
    "Projection",
    "RangeTerm",
    "Rank",
    "Source",
    "TextCache",
    "Trait",
    "ValueTerm",
    "access_of",
    "as_number",
    "as_text",
    "check_deterministic",
    "check_fields_alone",
    "compare",
    "compile_fields",
    "compile_filter",
    "compile_projection",
    "compile_term",
    "described_functions",
    "elements",
    "equalities_of",
    "find_access",
    "make_parser",
    "nested",
    "parse",
    "parse_order_by",
    "parse_projected",
    "paths_in",
    "seconds",
    "sort_key",
    "sow_keys_in",
    "traits_in",
    "walk",
]
