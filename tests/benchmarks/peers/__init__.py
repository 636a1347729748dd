"""Peers: the same work through this server and through what people use instead of it.

Redis, NATS JetStream, Perspective, SQLite and DuckDB, in the versions of `constraints.txt`; all
come from PyPI. Every figure counts only after its answers were checked: final states against what
was published (`load`), what a kill left against what was acknowledged (`taking`), rows of queries
and groups against the records (`asking`, `grouping`). Rounds are interleaved, so that all have met
the same weather. Rows that we lose come first. AMPS and Diffusion are left out: their licences
forbid such figures.
"""
