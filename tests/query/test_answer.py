"""One run of a query: found, sorted and paged, or Unready."""

import pytest

from sow.query import index_build
from sow.query.answer import answer
from sow.query.index_build import IndexBuild, Unready
from tests.query.topic import Topic, query


def test_an_answer_is_found_sorted_and_paged(monkeypatch) -> None:
    topic = Topic()
    topic.put(*({"id": at, "px": 10 - at} for at in range(6)))
    ready = IndexBuild(topic.indexes)
    requested = query("/px > 5", "/px", top_n=2, skip_n=1)
    found = answer(ready, requested)
    assert (found.slots.tolist(), found.matches) == ([3, 2], 5)
    ready.close()
    monkeypatch.setattr(index_build, "NOTES_FEW", 1)
    monkeypatch.setattr("sow.query.search.FEW_ROWS", 0)
    ready = IndexBuild(topic.indexes)
    with pytest.raises(Unready):
        answer(ready, query("/qty > 5"))
    ready.close()
