"""Bugs of views: sums, groups, joins, in the server and in Spark."""

from tests.simulation.mutation import Mutation

VIEWS = (
    Mutation(
        "Spark takes back nothing of a record that changes",
        "sow/spark/views.py",
        "for sign, contribution in ((-1, before), (1, after)):",
        "for sign, contribution in ((1, after),):",
    ),
    Mutation(
        "a row of a view that Spark runs says why another record left",
        "sow/spark/views.py",
        "if sign < 0 and bookmark > self._left[0]:",
        "if sign < 0 and bookmark < self._left[0]:",
    ),
    Mutation(
        "an older row of a batch stands for the record in Spark",
        "sow/spark/views.py",
        "if found is None or bookmark > found.bookmark:",
        "if found is None or bookmark < found.bookmark:",
    ),
    Mutation(
        "groups that have lost their rows count against the limit of a view",
        "sow/topic/views/groups.py",
        "        count = len(self) - self._empty",
        "        count = len(self)",
    ),
    Mutation(
        "a sum that was kept elsewhere has lost its scale",
        "sow/topic/views/exact_sum.py",
        "        self._set_scale(bits)\n\n    # Results.",
        "        self._bits = bits\n\n    # Results.",
    ),
    Mutation(
        "a row that moves stays in the group that it was in",
        "sow/topic/views/groups.py",
        "            if was:\n                self._leave",
        "            if was and not now:\n                self._leave",
    ),
    Mutation(
        "rows that are not given an age are the oldest",
        "sow/store/memory.py",
        "self._newest = self.seqs.copy()",
        "self._newest = np.zeros(self._numbers.shape[1], np.int64)",
    ),
    Mutation(
        "a group without rows is not forgotten",
        "sow/topic/views/groups.py",
        "            if not group.count:\n                del self._groups[key]",
        "            if not group.count:\n                pass",
    ),
    Mutation(
        "of a column of numbers, what they were stays in the sums",
        "sow/topic/views/exact_sum.py",
        "one._scaled += int(more) - int(was * scale)",
        "one._scaled += int(more)",
    ),
    Mutation(
        "a least value that becomes another one is still told",
        "sow/topic/views/distinct_values.py",
        "                one._least = now if now < least else None",
        "                one._least = now if now < least else least",
    ),
    Mutation(
        "births of rows that have gone stay in the order of a group",
        "sow/topic/views/groups.py",
        "        while order[0] in gone:",
        "        while False:",
    ),
    Mutation(
        "a view that is filled does not hear of what changes",
        "sow/topic/views/__init__.py",
        "            self._note(batch, self._given)\n",
        "            pass\n",
    ),
    Mutation(
        "what has changed while a view was filled is given twice",
        "sow/topic/views/__init__.py",
        "                given[slot] = False\n",
        "                pass\n",
    ),
    Mutation(
        "a row goes back over a restart",
        "sow/topic/views/view.py",
        "[group.seq if group.seq > floor else floor for group in groups]",
        "[group.seq for group in groups]",
    ),
    Mutation(
        "what a joined record met does not stand by itself when that has gone",
        "sow/topic/views/join_propagation.py",
        "            if is_last:\n                yield ENTERS, (*row, None)",
        "            if False:\n                yield ENTERS, (*row, None)",
    ),
    Mutation(
        "of joined rows that stay, those that meet nobody are not found",
        "sow/topic/views/join_propagation.py",
        'alone = (None,) if level.type != "inner" else ()',
        "alone: tuple[None, ...] = ()",
    ),
    Mutation(
        "what stood by itself stays when a joined record meets another",
        "sow/topic/views/join_propagation.py",
        "            if is_first:\n                yield REPLACED, (*row, None)",
        "            if False:\n                yield REPLACED, (*row, None)",
    ),
    Mutation(
        "what has gone from a row makes it the newest",
        "sow/topic/views/view.py",
        "[group.accumulators.newest_seq for group in groups]",
        "[group.seq for group in groups if True]",
    ),
    Mutation(
        "a row that is as it was is told again",
        "sow/topic/views/view.py",
        "differ = list(map(ne, before, bodies))",
        "differ = [True for _ in bodies]",
    ),
    Mutation(
        "a view that was changed goes on with the rows that it had",
        "sow/topic/views/view.py",
        "                self.groups.let_go(key, *self._inherited_stamp)",
        "                pass",
    ),
)
