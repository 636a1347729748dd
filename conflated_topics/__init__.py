"""Conflation: one small core, wherever updates are folded over time.

    Conflator       pending values per key: offer, due, take
    PerKey          when a key is released: its own window, opened by its first pending update
    Tick, OnDemand  or all keys together, at every interval or on demand
    FocusedConflator a conflator with a filter's focus: what enters, changes and leaves a copy

Nothing here uses sockets, clocks, records or the server; keys and values are whatever the caller
uses, times are integers in microseconds that the caller passes in.
"""

from conflated_topics.conflator import Conflator
from conflated_topics.topic import FocusedConflator, Offered, Removal
from conflated_topics.triggers import OnDemand, PerKey, Schedule, Tick

__all__ = [
    "Conflator",
    "FocusedConflator",
    "Offered",
    "OnDemand",
    "PerKey",
    "Removal",
    "Schedule",
    "Tick",
]
