"""Queries: planning, answering and aggregating, restricted to what the user may see."""
