"""Aggregates that SQL has come to what SQLite makes of the same rows, whatever came and went."""

import random
import sqlite3

import pytest

from sow.expressions import compile_projection
from sow.topic.views.accumulators import Keeping

PAIRS = {
    "COUNT(/v)": "COUNT(v)",
    "COUNT(1)": "COUNT(*)",
    "COUNT_DISTINCT(/v)": "COUNT(DISTINCT v)",
    "SUM(/v)": "SUM(v)",
    "AVG(/v)": "AVG(v)",
    "MIN(/v)": "MIN(v)",
    "MAX(/v)": "MAX(v)",
    "SUM(IF(/v > 2, 1, 0))": "SUM(IIF(v > 2, 1, 0))",
    "SUM(/v * 2) / COUNT(/v)": "SUM(v * 2) / COUNT(v)",
}
TEXTS = ("MIN(/v)", "MAX(/v)", "COUNT(/v)", "COUNT_DISTINCT(/v)", "COUNT(1)")
# Eighths add up without rounding in SQLite too.
POOLS = {
    "doubles": ([n / 8 for n in range(-20, 40)], PAIRS),
    "whole numbers": (list(range(-5, 9)), PAIRS),
    "texts": (["", "a", "b", "B", "10", "9", "Zz"], TEXTS),
}


@pytest.mark.parametrize("pool", POOLS)
def test_groups_come_to_what_sqlite_says(pool):
    values, ours = POOLS[pool]
    texts = [f"{text} AS /c{at}" for at, text in enumerate(ours)]
    projection = compile_projection(texts, ["/g"], {"t": "json"})
    group, there, randomness = Keeping(projection).group(), {}, random.Random(4)
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE rows (id, v)")
    requested = f"SELECT {', '.join(PAIRS[text] for text in ours)} FROM rows"

    def row(value):
        columns = [[None], [value]]
        return tuple(one.values(columns, 1)[0] for one in projection.arguments)

    for seq in range(400):
        identity = randomness.randrange(12)
        base.execute("DELETE FROM rows WHERE id = ?", (identity,))
        if identity in there:
            values_were, born = there.pop(identity)
            group.remove(values_were, identity, born)
        else:
            value = randomness.choice([*values, None])
            there[identity] = (row(value), seq)
            group.add(row(value), identity, seq, seq)
            base.execute("INSERT INTO rows VALUES (?, NULLIF(?, ''))", (identity, value))
        found = [*projection.document([None], group.results()).values()]
        expected = list(base.execute(requested).fetchone())
        if not there:
            expected = [0 if text.startswith("COUNT") else None for text in ours]
        assert found == expected
