"""Bugs of conflation by itself: schedules, windows, merges, and the clock that drives them."""

from tests.simulation.mutation import Mutation

CONFLATION = (
    Mutation(
        "a later update prolongs its window",
        "conflated_topics/conflator.py",
        "            self.schedule.open(fresh[::-1], now_us)\n",
        "            self.schedule.open(list(dict.fromkeys(keys)), now_us)\n",
    ),
    Mutation(
        "an update at the deadline joins the old window",
        "conflated_topics/triggers.py",
        "while windows and windows[0][0] <= now_us:",
        "while windows and windows[0][0] < now_us:",
    ),
    Mutation(
        "windows are released early",
        "conflated_topics/triggers.py",
        "point = -((self._begin_us - deadline_us) * self._points // self.interval_us)",
        "point = (deadline_us - self._begin_us) * self._points // self.interval_us",
    ),
    Mutation(
        "a removal of what the copy never held is released",
        "conflated_topics/topic.py",
        "for key, why in leaving.items() if self._holds(key)]",
        "for key, why in leaving.items()]",
    ),
    Mutation(
        "a copy takes a removal for an update after its first release",
        "conflated_topics/topic.py",
        "            self._may_leave = not self._conflator.is_idle\n",
        "            self._may_leave = False\n",
    ),
    Mutation(
        "a delete of a pending record is lost",
        "conflated_topics/topic.py",
        "list(map(or_, offered.counts, map(is_open.__contains__, offered.keys)))",
        "list(offered.counts)",
    ),
    Mutation(
        "a key is held for ten intervals",
        "conflated_topics/triggers.py",
        "followed(self._windows, (now_us + self.interval_us, keys))",
        "followed(self._windows, (now_us + 10 * self.interval_us, keys))",
    ),
    Mutation(
        "a corrected clock steps back",
        "sow/core/clock.py",
        "        if elapsed_us < self._made_up_after_us:\n",
        "        if False:\n",
    ),
    Mutation(
        "of copies that are alike one takes all with it that waits",
        "conflated_topics/topic.py",
        "        other._conflator.begin_like(self._conflator)\n",
        "",
    ),
    Mutation(
        "another interval forgets what waits",
        "conflated_topics/conflator.py",
        "            schedule.open(list(self._pending), now_us)\n",
        "            self._pending.clear()\n",
    ),
    Mutation(
        "a window that has ended keeps its keys",
        "conflated_topics/conflator.py",
        "self._end(release_us, dict(zip(keys, map(self._pending.pop, keys), strict=True)))",
        "self._end(release_us, dict(zip(keys, map(self._pending.get, keys), strict=True)))",
    ),
    Mutation(
        "a late take joins two windows",
        "conflated_topics/conflator.py",
        "        del self._closed[0]\n        return first\n",
        "        del self._closed[0]\n        if self._is_due(now_us):\n"
        "            self._put(first, self._closed[0][1])\n            del self._closed[0]\n"
        "        return first\n",
    ),
    Mutation(
        "the windows of one moment open one after the other",
        "sow/topic/conflated_topic.py",
        "now_us = self.underlying.changes_us",
        "pass",
    ),
)
