"""Crowds of clients that mean no good, or are just many: what each costs the others.

`python -m tests.storm` sends them all at a server in a process of its own and prints a table;
`test_storm` sends small ones in the default run.
"""
