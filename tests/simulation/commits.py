"""Staged batches in a run: begun, advanced a step now and then, and never visible in part.

The model has a batch from the moment on in which the server has assigned all its numbers. A request
for its topic takes the remaining steps, so everything else on that topic happens after it.
"""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass

from sow.errors import SowError
from sow.sessions.commands.commit_plan import StagedRows
from sow.sessions.commands.staged_writes import StagedWrites
from tests.simulation.configurations import DELETED_FROM


@dataclass(eq=False)
class Committing:
    """A staged batch on its way into a topic: its rows and epoch, whether the model has it, and
    whether its client has gone."""

    name: str
    rows: list
    epoch: int
    steps: Iterator[None]
    is_known: bool = False
    is_left: bool = False


class Commits:
    """The part of a simulation that commits batches; the subclass has documents, too."""

    def __init__(self, random, model):
        self.random, self.model = random, model
        self.world = self.taste = None
        self.commit = None
        self.epochs = itertools.count(1)

    def _begin_commit(self):
        """A staged batch that others advance by a step now and then; it is visible at once."""
        name, rows = self.random.choice(self.taste.published), []
        if self.commit or self.world.journal.full or self.world.unstored:
            return
        if name in ("e", "through"):
            return
        for document in itertools.chain.from_iterable(self._documents() for _ in range(3)):
            rows.append((self.random.choice(("publish", "publish", "delta", "delete")), document))
        if name not in DELETED_FROM:
            rows = [(operation, one) for operation, one in rows if operation != "delete"]
        writes = StagedWrites(self.world.engine)
        topic = writes.topic(name)
        keys = [topic.records.identities_of([json.dumps(one).encode()])[0] for _, one in rows]
        staged = StagedRows(
            [operation for operation, _ in rows],
            [topic.records.sow_key_of(key) for key in keys],
            [self._staged_body(*row) for row in rows],
        )
        steps, rejected = writes.read(topic, staged)
        assert not rejected
        epoch = next(self.epochs)
        applying = writes.applying("sim", epoch, name, steps, self.world.now)
        self.commit = Committing(name, rows, epoch, applying)
        self._commit_more()

    def _staged_body(self, operation, document):
        """Of some that are to be deleted only the SowKey is given."""
        if operation == "delete" and self.random.random() < 0.5:
            return None
        return json.dumps(document).encode()

    def _go_on_committing(self):
        if self.commit and self.random.random() < 0.3:
            self._commit_more()

    def _commit_more(self):
        """One step of a commit; of some the client goes, and the server goes on with it."""
        commit, left = self.commit, []
        try:
            next(commit.steps)
            if not commit.is_left and self.random.random() < 0.05:
                self.world.engine.atomic.on_left(left.append)
                commit.steps.close()
                if left:
                    (commit.steps,), commit.is_left = left, True
                else:
                    # It had not begun, and so is none; or it was over.
                    self.commit = None
        except StopIteration:
            self.commit = None
        except SowError:
            assert self.world.unstored or self.world.journal.full
            self.commit = None
        self._know_commit(commit)
        self.world.settle()

    def _hear_of_commit(self):
        """A request that waited for a commit may have taken its remaining steps."""
        if self.commit:
            self._know_commit(self.commit)

    def _know_commit(self, commit):
        """The model has a batch from the moment on in which the server has all of it."""
        applied = None if commit.is_known else self._applied(commit)
        if applied is not None:
            commit.is_known = True
            self.model.commit(commit.name, commit.rows, self.world.engine.now_us)
            assert self.model.seq == int(applied)
        topic = self.world.engine.topics.get(commit.name)
        held = () if topic is None else topic.records.table
        for operation, document in commit.rows:
            # Records that were being deleted already are removed before the model knows. It checks
            # that they are gone: the last number may be of a publish that the model gets later.
            key, behind = str(document["id"]), self.model.seq < self.world.engine.seq
            if behind and operation != "delete" and key not in held:
                self.model.make_way(commit.name, key)

    def _applied(self, commit):
        return StagedWrites(self.world.engine).applied("sim", commit.epoch, commit.name)

    def _end_commit(self):
        while self.commit:
            self._commit_more()

    def _let_commit_by(self, is_touched):
        """Have the model know of a commit before something is done to its topic, and of one whose
        numbers are given before anything else is."""
        self._hear_of_commit()
        commit = self.commit
        while commit and self.commit is commit and not commit.is_known and is_touched(commit.name):
            self._commit_more()
