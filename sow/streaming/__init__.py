"""Who is told what of a topic's changes, and how it waits: from a batch to a session's queue."""
