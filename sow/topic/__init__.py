"""One topic: its records, what becomes of them, and how they and their changes are written.

Nobody here knows who is told of a change; that is `sow.streaming`.
"""
