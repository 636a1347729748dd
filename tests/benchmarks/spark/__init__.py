"""Benchmarks of SOW with Spark: what the data source and conflation cost beside what Spark costs.

Run `python -m tests.benchmarks.spark`. They need Java, and minutes rather than seconds, so they
are a program of their own. A floor here is Spark itself, doing the same work in the cheapest way
that is not ours.
"""
