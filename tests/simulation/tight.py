"""Bounds of the product made small for a run, so that few records cross what takes thousands.

How long a chunk, a frame or a heap may be changes nothing that a client may rely on.
"""

from contextlib import contextmanager
from importlib import import_module

BOUNDS = {
    (
        "sow.history.snapshot:ANSWER_CHUNK_ROWS",
        "sow.requests.questions:ANSWER_CHUNK_ROWS",
        "sow.requests.taken:ANSWER_CHUNK_ROWS",
    ): (2, 3, 1000),
    ("sow.history.held:PICKED_ROWS_MAX",): (0, 2, 500),
    ("sow.requests.replay:RECORDS_AT_ONCE",): (1, 3, 2000),
    ("sow.delivery.outbox:GATHERED_MAX",): (1, 3, 1000),
    ("sow.delivery.outbox:FOLDED_AT_ONCE",): (1, 4, 50),
    ("sow.delivery.queue:DEAD_MIN",): (0, 3, 64),
    ("sow.delivery.folding:DISPLACEMENTS_MAX",): (0, 2, 8),
    ("sow.topic.expirations:ENTRIES_MIN",): (1, 8, 1024),
    (
        "sow.topic.conflated_copy:RELEASED_AT_ONCE",
        "sow.delivery.conflated_strands:RELEASED_AT_ONCE",
    ): (1, 3, 500),
    ("sow.topic.views.view:RELEASED_AT_ONCE",): (1, 3, 250),
    ("sow.topic.views.single_rows:STEP_ROWS",): (1, 2, 250),
    ("sow.engine.views:ROWS_AT_ONCE",): (1, 4, 500),
    ("sow.topic.views.joins:ROWS_AT_ONCE",): (1, 3, 250),
    ("sow.topic.views.join_flow:FETCHED_AT_ONCE",): (1, 2, 250),
    ("sow.topic.expirations:EXPIRED_AT_ONCE",): (1, 2, 200),
    ("sow.engine.removals:RECORDS_AT_ONCE",): (1, 2, 100),
    ("sow.delivery.feeds:FEW_OF",): (0, 8, 1000),
    ("sow.delivery.term_index:CROWD_MIN",): (1, 2, 16),
    ("sow.delivery.focuses:CROWD_MIN",): (1, 2, 16),
    ("sow.topic.conflated_copy:NAMES_IN_STEP",): (1, 10),
    ("sow.delivery.intervals:KNOWN_MAX",): (0, 16),
    ("sow.messages.json_columns:GENERATED_PATHS_MAX",): (0, 32),
    ("sow.requests.ending:ENDED_AT_ONCE",): (1, 50),
    ("sow.requests.ending:FEEDS_AT_ONCE",): (1, 2, 20),
    ("sow.requests.questions:MATCHED_AT_ONCE",): (1, 2, 500),
    ("sow.requests.questions:TAKEN_AT_ONCE",): (1, 2, 25),
    ("sow.engine.timers:NOTED_AT_ONCE",): (1, 500),
    ("sow.engine.topic_changes:LEAVING_AT_ONCE",): (1, 25),
    ("sow.engine.filters:FILTERS_KEPT_WEIGHT",): (1, 512 * 1024),
    ("sow.engine.publications:SLICE_ROWS",): (1, 3, 250),
    ("sow.requests.staged_rows:STORED_AT_ONCE", "sow.requests.commit_plan:STORED_AT_ONCE"): (
        1,
        3,
        250,
    ),
}
"""One choice for all the names under which a bound is known."""


@contextmanager
def tightened(random):
    """Within, each bound is what a seed says."""
    usual = []
    try:
        for places, choices in BOUNDS.items():
            value = random.choice(choices)
            for module, _, name in (place.partition(":") for place in places):
                found = import_module(module)
                usual.append((found, name, getattr(found, name)))
                setattr(found, name, value)
        yield
    finally:
        for found, name, value in usual:
            setattr(found, name, value)
