"""Commands of sessions: execution, writes of records and batches, and the sessions themselves."""
