"""Records and log entries held still: as they are, as they were, and from a bookmark on."""
