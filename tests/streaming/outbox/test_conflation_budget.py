"""What a publisher folds for others is bounded in each step, however many do not read."""

from sow.core.definitions import SessionSettings, Topic
from sow.protocol.publish_batching import read_frames
from sow.streaming.outbox.conflate import Queue
from sow.streaming.outbox.overflow import FOLDED_TOGETHER
from tests.laws.harness import SECOND, World

OVER = object()


def counted(monkeypatch):
    """Updates that are folded, one after the other."""
    folds, fold = [], Queue._fold

    def count(self, *arguments):
        folds.append(1)
        fold(self, *arguments)

    monkeypatch.setattr(Queue, "_fold", count)
    return folds


class Crowd:
    """Many that follow a topic and do not read, and one that publishes."""

    def __init__(self, count, **policy):
        self.world = World(
            Topic("t", "json", keys=("/id",), **policy),
            sessions=SessionSettings(queue_messages_max=400),
        )
        self.clients = [self.world.client() for _ in range(count)]
        for client in self.clients:
            client.say(c="subscribe", t="t", cid="1")
        self.publisher = self.world.client()
        self.numbers = 0

    def frame(self, count):
        lines = [b'{"c":"publish","t":"t","n":%d,"cid":"%d"}' % (count, self.numbers)]
        for _ in range(count):
            self.numbers += 1
            lines.append(b'{"id":%d,"n":%d}' % (self.numbers % 40, self.numbers))
        return b"\n".join(lines)

    def waiting(self):
        return [client.session.outbox.message_count for client in self.clients]


def last_sent(client):
    """By record, what a client was sent last."""
    return {line["d"]["id"]: line["d"]["n"] for line in client.lines() if line["c"] == "p"}


def folded_by_step(crowd, folds, frames, count):
    """The most that one step of a publisher folded, and that one `settle`."""
    steps, settled = [0], [0]
    for _ in range(frames):
        commands, now_us = read_frames([crowd.frame(count)]), lambda: crowd.world.now
        carrying = crowd.world.executor.carry_out(crowd.publisher.session, commands, now_us)
        while True:
            before = len(folds)
            over = next(carrying, OVER) is OVER
            steps.append(len(folds) - before)
            before = len(folds)
            crowd.world.settle()
            settled.append(len(folds) - before)
            if over:
                break
    crowd.world.check()
    return max(steps), max(settled)


def test_a_publisher_does_not_fold_for_hundreds_in_one_step(monkeypatch):
    crowd = Crowd(60)
    folds = counted(monkeypatch)
    step, settled = folded_by_step(crowd, folds, 24, 100)
    # A step of folding goes on to the end of the frame that it has begun.
    assert 0 < step <= 2 * 100
    assert 0 < settled <= FOLDED_TOGETHER + 2 * 100
    bound = 400
    assert max(crowd.waiting()) <= 3 * bound, "nothing is added to a backlog"
    assert not any(client.session.ended for client in crowd.clients)
    newest = {n % 40: n for n in range(1, crowd.numbers + 1)}
    assert all(last_sent(client) == newest for client in crowd.clients), "nothing is lost"


def test_what_is_always_conflated_is_folded_in_steps_where_many_do_not_read(monkeypatch):
    crowd = Crowd(60, conflation_policy="always")
    folds = counted(monkeypatch)
    step, settled = folded_by_step(crowd, folds, 16, 100)
    assert step <= 2 * 100
    # Beside the share: a frame for all of them, the frame that the share ends within, two steps.
    assert 0 < settled <= FOLDED_TOGETHER + 4 * 100
    assert max(crowd.waiting()) <= 3 * 400
    newest = {n % 40: n for n in range(1, crowd.numbers + 1)}
    assert all(last_sent(client) == newest for client in crowd.clients)
    while crowd.world.executor.sessions.fold_some(crowd.world.now):
        crowd.world.settle()
    assert not any(client.session.folds for client in crowd.clients)


class Ready:
    """A socket that would take all that it is given."""

    is_stuck = False


def test_who_reads_is_not_given_up_for_folding_that_came_late():
    crowd, socket = Crowd(12), Ready()
    for client in crowd.clients:
        client.session.belong_to(socket)

    def now_us():
        return crowd.world.clock.advance(SECOND)

    # More records than a queue may hold: folding alone brings none under its bounds.
    for start in range(0, 4_000, 500):
        bodies = [b'{"id":%d,"n":%d}' % (n % 1_000, n) for n in range(start, start + 500)]
        line = b'{"c":"publish","t":"t","n":500,"cid":"1"}'
        commands = read_frames([b"\n".join([line, *bodies])])
        for _ in crowd.world.executor.carry_out(crowd.publisher.session, commands, now_us):
            now_us()
            crowd.world.settle()
    assert not any(client.session.ended for client in crowd.clients)
    newest = {n % 1_000: n for n in range(4_000)}
    assert all(last_sent(client) == newest for client in crowd.clients)


def test_who_is_ended_or_goes_is_in_conflation_budget_no_more():
    crowd = Crowd(3)
    sessions = crowd.world.executor.sessions
    while not crowd.world.engine.conflation_budget.must_work_off():
        crowd.world.engine.publish("t", crowd.frame(100).split(b"\n")[1:], crowd.world.now)
        group = crowd.world.engine.flush()
        crowd.world.engine.sequencer.release(group)
        for session in group.sessions:
            sessions.apply_back_pressure(session, crowd.world.now)
    assert not crowd.world.engine.is_free("t")
    first, second, third = crowd.clients
    sessions.close(first.session)
    sessions.end(second.session, "ended")
    assert crowd.world.engine.conflation_budget.must_work_off()
    third.session.allow_folding(False)
    list(crowd.world.engine.conflation_budget.work_off())
    assert crowd.world.engine.is_free("t")
