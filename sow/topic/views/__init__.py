"""Views: rows grouped from the records of other topics, kept current change by change.

    producer (one topic, or a join of several) ──> RowChanges ──> groups ──> rows of the view

A producer says which input rows have come, changed or gone, with the values of the fields that the
view wants of them. Groups take the values in and out of their accumulators and know which of them
have changed; at the end of a turn these become the view's own records.
"""
