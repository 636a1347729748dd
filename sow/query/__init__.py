"""Queries: which records of a topic match, and how they are found.

`answering` narrows the topic down with its indexes (`search`), then sorts and pages the rest
(`answers`). Indexes that a query needs, such as the column of a field, are built first, in steps
(`index_build`). The answer is slots, valid until the table changes next; the caller takes the
bodies. `ConsistentBatch` answers several queries as of one moment.
"""

from sow.query.answers import ConsistentBatch, TopicQuery, answering, answering_current
from sow.query.query import PlanStep, Query, QueryAnswer

__all__ = [
    "ConsistentBatch",
    "PlanStep",
    "Query",
    "QueryAnswer",
    "TopicQuery",
    "answering",
    "answering_current",
]
