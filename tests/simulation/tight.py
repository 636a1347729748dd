"""Bounds of the product made small for a run, so that few records cross what takes thousands.

How long a chunk, a frame or a heap may be changes nothing that a client may rely on.
"""

from contextlib import contextmanager
from importlib import import_module

BOUNDS = {
    (
        "sow.history.snapshot:ANSWER_CHUNK_ROWS",
        "sow.sessions.queries.query_planning:ANSWER_CHUNK_ROWS",
        "sow.sessions.queries.query_results:ANSWER_CHUNK_ROWS",
    ): (2, 3, 1000),
    ("sow.history.snapshot:PICKED_ROWS_MAX",): (0, 2, 500),
    ("sow.sessions.subscriptions.log_replay:RECORDS_AT_ONCE",): (1, 3, 2000),
    ("sow.streaming.outbox.outbox:GATHERED_MAX",): (1, 3, 1000),
    ("sow.streaming.outbox.outbox:FOLDED_AT_ONCE",): (1, 4, 50),
    ("sow.streaming.outbox.conflate:DEAD_MIN",): (0, 3, 64),
    ("sow.streaming.outbox.conflate:DISPLACEMENTS_MAX",): (0, 2, 8),
    ("sow.engine.timers:ENTRIES_MIN",): (1, 8, 1024),
    (
        "sow.topic.conflated_topic:RELEASED_AT_ONCE",
        "sow.streaming.conflated_channel:RELEASED_AT_ONCE",
    ): (1, 3, 500),
    ("sow.topic.views.view:RELEASED_AT_ONCE",): (1, 3, 250),
    ("sow.topic.views:STEP_ROWS",): (1, 2, 250),
    ("sow.engine.views:ROWS_AT_ONCE",): (1, 4, 500),
    ("sow.topic.views.joins:ROWS_AT_ONCE",): (1, 3, 250),
    ("sow.topic.views.join_propagation:FETCHED_AT_ONCE",): (1, 2, 250),
    ("sow.engine.timers:EXPIRED_AT_ONCE",): (1, 2, 200),
    ("sow.engine.bulk_delete:RECORDS_AT_ONCE",): (1, 2, 100),
    ("sow.streaming.feeds:FEW_OF",): (0, 8, 1000),
    ("sow.streaming.predicate_index:CROWD_MIN",): (1, 2, 16),
    ("sow.streaming.predicate_index:COPIES_INDEXED_MIN",): (1, 2, 16),
    ("sow.topic.conflated_topic:NAMES_IN_STEP",): (1, 10),
    ("sow.streaming.term_buckets:KNOWN_MAX",): (0, 16),
    ("sow.messages.json:GENERATED_PATHS_MAX",): (0, 32),
    ("sow.sessions.subscriptions:ENDED_AT_ONCE",): (1, 50),
    ("sow.sessions.subscriptions:FEEDS_AT_ONCE",): (1, 2, 20),
    ("sow.sessions.queries.query_planning:MATCHED_AT_ONCE",): (1, 2, 500),
    ("sow.sessions.queries.query_planning:TAKEN_AT_ONCE",): (1, 2, 25),
    ("sow.engine.timers:NOTED_AT_ONCE",): (1, 500),
    ("sow.engine.topic_changes:LEAVING_AT_ONCE",): (1, 25),
    ("sow.engine.queries:FILTERS_KEPT_WEIGHT",): (1, 512 * 1024),
    ("sow.engine.bulk_publish:SLICE_ROWS",): (1, 3, 250),
    ("sow.sessions.commands.commit_plan:STORED_AT_ONCE",): (1, 3, 250),
}
"""One choice for all the names under which a bound is known."""
ALWAYS = {
    # A queue that holds more than this counts in queue memory; here each does.
    "sow.streaming.sessions:UNCOUNTED_BYTES": 0,
    "sow.streaming.sessions:GIVEN_UP_AT_ONCE": 1,
    "sow.streaming.session_memory:MOVED_AT_ONCE": 1,
}
"""Bounds that are the same in each run."""


@contextmanager
def tightened(random):
    """Within, each bound is what a seed says."""
    usual = []

    def set_all(places, value):
        for module, _, name in (place.partition(":") for place in places):
            found = import_module(module)
            usual.append((found, name, getattr(found, name)))
            setattr(found, name, value)

    try:
        for place, value in ALWAYS.items():
            set_all((place,), value)
        for places, choices in BOUNDS.items():
            set_all(places, random.choice(choices))
        yield
    finally:
        for found, name, value in reversed(usual):
            setattr(found, name, value)
