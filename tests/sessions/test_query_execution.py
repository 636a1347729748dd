"""What is asked is answered as of one moment, whatever happens while it is written."""

import pytest

from sow.core.cooperative import run_to_completion
from sow.errors import Busy, UnknownTopic
from sow.query import Query
from sow.sessions.query_execution import execute_query
from tests.laws.harness import ORDERS, World


def test_an_answer_has_its_rows_its_bookmark_and_how_it_was_found():
    world = World(ORDERS)
    world.publish("orders", {"id": 1}, {"id": 2}, {"id": 3})
    found = run_to_completion(
        execute_query(world.engine, "orders", Query(filter=world.engine.filter("/id > 1"), top_n=1))
    )
    assert (found.answer.matches, len(found.rows), found.bookmark) == (2, 1, 3)
    assert found.rows.stamps is not None
    found = run_to_completion(execute_query(world.engine, "orders", Query(), with_keys=False))
    assert found.rows.stamps is None
    with pytest.raises(UnknownTopic):
        run_to_completion(execute_query(world.engine, "nope", Query()))


def test_nothing_is_taken_hold_of_that_is_not_admitted():
    world = World(ORDERS)
    world.publish("orders", {"id": 1}, {"id": 2})

    def admit(rows):
        raise Busy(f"not {rows} rows")

    with pytest.raises(Busy, match="not 2 rows"):
        run_to_completion(execute_query(world.engine, "orders", Query(), admit=admit))
