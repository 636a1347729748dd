"""Bugs of followers and chained servers, which need several nodes to be seen."""

from tests.simulation.mutation import Mutation

NODES = (
    Mutation(
        "a follower skips a change after a reconnect",
        "sow/server/boot/follower.py",
        '                log.info("found %s again", self.upstream.url)\n',
        "                self._engine.sequencer.begin_after(self._engine.seq + 1)\n",
    ),
    Mutation(
        "a follower shows a part of a batch",
        "sow/engine/following.py",
        "        if topic is None:\n            self._number(parts)\n",
        "        for part in parts:\n            self._number((part,))\n"
        "            self._store(topic, (part,))\n            yield\n"
        "        if parts:\n            return\n"
        "        if topic is None:\n            self._number(parts)\n",
    ),
    Mutation(
        "a run of an action that has ended stays with who follows, and is done again by it",
        "sow/engine/following.py",
        "            newer = [at for at in newer if names[at] in topic.records.table]\n",
        '            there = topic.records.table if topic.name != "/sow/actions" else ()\n'
        "            newer = [at for at in newer if names[at] in there]\n",
    ),
    Mutation(
        "a follower lets windows end before what is on its way",
        "sow/server/api/followers.py",
        "            return Beat(self.after, 0)\n",
        "            return Beat(self.after, sequencer.moment(self._runtime.now_us()))\n",
    ),
    Mutation(
        "a chained server takes lines twice that came before a loss",
        "sow/server/chained/link.py",
        "self._seen += len(lines)\n",
        "self._seen += len(lines) - 1\n",
    ),
    Mutation(
        "a shared subscription goes on at the newest change after a loss",
        "sow/server/chained/shared_subscription.py",
        "opts=self.wanted.options(*SHARED_FLAGS), bm=place)",
        'opts=self.wanted.options(*SHARED_FLAGS), bm="now")',
    ),
    Mutation(
        "a client repeats what it had when it goes on elsewhere",
        "sow/client/subscription.py",
        'fields["bm"] = going_on(str(fields["bm"]), self.bookmark)',
        'fields["bm"] = str(fields["bm"])',
    ),
)
