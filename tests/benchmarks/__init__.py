"""Benchmarks: what the server costs, each figure beside the floor that physics sets.

Run `python -m tests.benchmarks`. Each module here measures one path and yields `Figure`s; none
of them judges. What the figures are held against is in `budgets`, how they are shown in `report`.
"""
