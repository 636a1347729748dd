"""Views: rows grouped from the records of other topics, kept current change by change.

    producer (one topic, or a join of several) ──> RowDeltas ──> groups ──> rows of the view

A producer yields the input rows that were added, changed or removed, with the values of the fields
that the view needs. Groups add the values to their accumulators, or remove them, and track which of
them have changed; at the end of a turn these become the view's own records.
"""
