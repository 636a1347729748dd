"""Nodes: what edges, followers and a shared log cost and take over, beside one server that does it
all.

Run `python -m tests.benchmarks.nodes`, or `make bench-nodes`. `edges` measures chained servers,
`followers` servers that follow the log of another, `shared_log` nodes of one log, and `page` writes
docs/results/nodes.md.
"""
