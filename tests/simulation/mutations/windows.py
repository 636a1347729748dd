"""Bugs of live windows over an order."""

from tests.simulation.mutation import Mutation

WINDOWS = (
    Mutation(
        "a live window is told who enters before who leaves",
        "sow/streaming/windows/window_channel.py",
        "encoded = [self._line(step, held) for step in steps]",
        "encoded = [self._line(step, held) for step in reversed(steps)]",
    ),
    Mutation(
        "a record that moves down an order concerns none of those that it passes",
        "sow/streaming/windows/ordered_sets.py",
        "return (stood, at) if stood < at else (at, stood)",
        "return (stood, stood) if stood < at else (at, stood)",
    ),
    Mutation(
        "an ordered set that is short is not filled",
        "sow/streaming/windows/ordered_sets.py",
        "        return not self.head.complete and len(self.head) < self._need",
        "        return False",
    ),
    Mutation(
        "an ordered set does not tell equal records apart by their births",
        "sow/streaming/windows/ordered_sets.py",
        "self.head.put((*ranks, self.topic.table.tie(changes.slots[at]), identity))",
        "self.head.put((*ranks, 0, identity))",
    ),
    Mutation(
        "a record that leaves a window stood one place further on",
        "sow/streaming/windows/__init__.py",
        "yield PageStep(identity, old, None, len(order), len(order))",
        "yield PageStep(identity, old, None, len(order) + 1, len(order))",
    ),
    Mutation(
        "a record is put before what has settled in a window",
        "sow/streaming/windows/__init__.py",
        "at = 0 if last is None else order.index(last) + 1",
        "at = 0 if last is None else order.index(last)",
    ),
    Mutation(
        "a head that was cut goes on as if it had everything",
        "sow/streaming/windows/ordered_sets.py",
        "            self.bound = self.order[-1] if self.order else None",
        "            self.complete = True",
    ),
    Mutation(
        "why a record has gone is told as if it had left the window alone",
        "sow/streaming/windows/__init__.py",
        "                self.parted[identity] = Parted(reason, body)",
        '                self.parted[identity] = Parted("match", body)',
    ),
    Mutation(
        "a window is scrolled by an order that does not reach so far",
        "sow/streaming/windows/ordered_sets.py",
        "        return self.head.complete or len(self.head) >= end",
        "        return True",
    ),
    Mutation(
        "who does not keep up with a window is told all the same",
        "sow/streaming/windows/window_channel.py",
        "return session.keeps_up and session.has_room(*self._lagging.get(session, NOTHING_LACKED))",
        "return True",
    ),
    Mutation(
        "a turn is told though the queue has no room for it",
        "sow/streaming/windows/window_channel.py",
        "return not self._may_lag(session) or session.has_room(*room)",
        "return True",
    ),
)
