"""One topic: its records, their changes, and how both are written.

Who receives a change is not known here; that is `sow.streaming`.
"""
