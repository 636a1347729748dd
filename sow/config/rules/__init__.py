"""Rules: what must agree between the elements of a document."""
