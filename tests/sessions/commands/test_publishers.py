"""Named publishers: numbers that are applied once, one live connection, owners, and an end."""

import json
from dataclasses import replace

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import PUBLISHERS, JournalSettings, Topic
from sow.core.security_definitions import User
from sow.engine import bulk_delete, bulk_publish
from sow.errors import ClientError, TooLarge
from sow.protocol.publish_batching import HIGHEST_SEQ, read_frames
from sow.security.authorization import EVERYTHING, Permissions
from sow.sessions.commands import executor, publishers
from sow.sessions.commands.publishers import NameInUse, NumberedAnswer, SequenceGap
from tests.laws.harness import ORDERS, SECOND, SlowDisk, World

UNLOGGED = Topic("u", "json", keys=("/id",), durability="transient")
LASTS_US = JournalSettings().sequence_expiration_us
BATCH = b'{"c":"publish","t":"orders","d":{"id":%d},"seq":%d,"cid":"%d"}'


def world_of(kind=World):
    return kind(ORDERS, UNLOGGED, PUBLISHERS)


def log_on(world, name="feed", **more):
    """A client that owns a name, and the highest number that it is told."""
    client = world.client()
    (ack,) = client.say(c="logon", cid="on", client=name, sequence=True, **more)
    return client, ack.get("sequence", ack)


def publish(client, seq, *ids, c="publish", t="orders", **more):
    head = {"c": c, "t": t, "n": len(ids), "seq": seq, "cid": "p", **more}
    lines = [json.dumps(head, separators=(",", ":")), *(json.dumps({"id": name}) for name in ids)]
    (ack,) = [line for line in client.send("\n".join(lines).encode()) if line["c"] == "ack"]
    return ack


def ids(world, topic="orders"):
    return [record["id"] for record in world.records(topic)]


def test_a_number_is_applied_once_and_what_is_sent_again_is_a_duplicate():
    world = world_of()
    client, highest = log_on(world)
    assert highest == 0
    assert "duplicate" not in publish(client, 1, 1, 2)
    again = publish(client, 1, 7, 8)
    assert (again["status"], again["duplicate"]) == ("success", True)
    assert publish(client, 2, 7, 3)["applied"] == 1
    assert publish(client, 4, 4, c="delta_publish").get("applied") is None
    assert ids(world) == [1, 2, 3, 4]
    assert client.say(c="sow_delete", t="orders", filter="/id=1", seq=5, cid="d")[0]["deleted"] == 1
    world.publish("orders", {"id": 1})
    (again,) = client.say(c="sow_delete", t="orders", filter="/id=1", seq=5, cid="d")
    assert (again["deleted"], again["duplicate"]) == (0, True)
    assert sorted(ids(world)) == [1, 2, 3, 4]
    world.check()


def test_a_gap_is_refused_with_what_is_expected_unless_there_may_be_one():
    world = world_of()
    client, _ = log_on(world)
    refused = publish(client, 3, 1)
    assert (refused["reason"], refused["expected"]) == ("sequence gap", 1)
    assert publish(client, 3, 1, opts="gaps")["status"] == "success"
    assert publish(client, HIGHEST_SEQ, 1, 2, opts="gaps")["status"] == "failure"
    assert publish(client, 4, 2)["status"] == "success"
    assert log_on(world)[1] == 4


def test_a_message_that_is_refused_uses_no_number():
    world = world_of()
    client, _ = log_on(world)
    assert publish(client, 1, 1, None)["index"] == 1
    assert publish(client, 1, 1)["status"] == "success"
    assert publish(client, 1, 1, None)["index"] == 1, "the index is that in the frame"
    assert publish(client, 2, 2, t="nowhere")["reason"] == "invalid topic"
    assert publish(client, 2, 2)["status"] == "success"


def test_publishes_that_come_together_are_counted_together(monkeypatch):
    world = world_of()
    client, _ = log_on(world)
    frames = [BATCH % (n, n, n) for n in range(1, 40)]
    reads = read_frames(frames)
    assert len(reads) == 1
    assert world.executor.publish_at_once(client.session, reads, world.now)
    assert not world.executor.publish_at_once(client.session, reads, world.now), "they were applied"
    entries = world.engine.flush().entries
    accounts = [entry for entry in entries if entry.account]
    assert len(accounts) == 1
    assert json.loads(accounts[0].bodies[0])["seq"] == 39


def test_numbers_belong_to_those_who_have_logged_on_with_a_name():
    world = world_of()
    client = world.client()
    client.say(c="logon", cid="on", client="feed")
    refused = publish(client, 1, 1)
    assert "sequence:true" in refused["detail"]
    assert ids(world) == []
    (refused,) = client.say(c="logon", cid="on", sequence=True)
    assert refused["status"] == "failure"
    (refused,) = client.say(c="logon", cid="on", client="a\nb", sequence=True)
    assert refused["status"] == "failure"


@pytest.mark.parametrize("topic", ["orders", "u"])
def test_a_restart_knows_the_numbers_of_all_topics(topic):
    world = world_of()
    client, _ = log_on(world)
    publish(client, 1, 1, 2, t=topic)
    assert log_on(world.restart())[1] == 2


def test_a_number_is_in_the_same_group_as_what_it_counts():
    world = world_of(SlowDisk)
    client, _ = log_on(world)
    world.lag = 2
    client.execute(BATCH % (1, 1, 1))
    client.execute(BATCH % (2, 2, 2))
    assert log_on(world.restart())[1] == 0
    world.catch_up()
    world = world.restart()
    assert (log_on(world)[1], ids(world)) == (2, [1, 2])


def test_a_crash_within_a_long_frame_leaves_a_prefix_that_is_counted(monkeypatch):
    monkeypatch.setattr(bulk_publish, "SLICE_ROWS", 2)
    monkeypatch.setattr(executor, "TOGETHER_MAX", 2)
    world = world_of()
    client, _ = log_on(world)
    head = b'{"c":"publish","t":"orders","n":7,"seq":1,"cid":"p"}'
    frame = b"\n".join([head, *(b'{"id":%d}' % n for n in range(1, 8))])
    steps = world.executor.carry_out(client.session, read_frames([frame]), lambda: world.now)
    while len(ids(world)) < 4:
        next(steps)
    world.settle()
    world = world.restart()
    client, highest = log_on(world)
    assert (highest, ids(world)) == (4, [1, 2, 3, 4])
    (ack,) = client.send(frame)
    assert ack["applied"] == 3
    assert ids(world) == [1, 2, 3, 4, 5, 6, 7]


def test_a_delete_is_counted_with_its_last_record(monkeypatch):
    monkeypatch.setattr(bulk_delete, "RECORDS_AT_ONCE", 2)
    world = world_of()
    client, _ = log_on(world)
    publish(client, 1, 1, 2, 3)
    line = b'{"c":"sow_delete","t":"orders","filter":"1=1","seq":4,"cid":"d"}'
    steps = world.executor.carry_out(client.session, read_frames([line]), lambda: world.now)
    while len(ids(world)) > 1:
        next(steps)
    world.settle()
    assert log_on(world.restart())[1] == 3, "it is not over"
    while ids(world):
        next(steps)
    world.settle()
    assert log_on(world.restart())[1] == 4


def test_a_second_connection_closes_the_first_and_is_told_what_it_had_begun(monkeypatch):
    monkeypatch.setattr(bulk_publish, "SLICE_ROWS", 2)
    monkeypatch.setattr(executor, "TOGETHER_MAX", 2)
    world = world_of()
    first, _ = log_on(world)
    head = b'{"c":"publish","t":"orders","n":5,"seq":1,"cid":"p"}'
    frame = b"\n".join([head, *(b'{"id":%d}' % n for n in range(1, 6))])
    steps = world.executor.carry_out(first.session, read_frames([frame]), lambda: world.now)
    while not ids(world):
        next(steps)
    second = world.client()
    line = b'{"c":"logon","cid":"on","client":"feed","sequence":true}'
    logon = world.executor.carry_out(second.session, read_frames([line]), lambda: world.now)
    next(logon)
    assert first.session.ended == "replaced"
    steps.close()  # as its reader does; what has begun is finished
    run_to_completion(logon)
    world.settle()
    (ack,) = second.lines()
    assert (ack["sequence"], ids(world)) == (5, [1, 2, 3, 4, 5])
    assert first.lines()[-1] == {"c": "close", "reason": "replaced"}
    first.execute(BATCH % (9, 6, 6))
    assert 9 not in ids(world), "the first is not heard any more"
    assert publish(second, 6, 6)["status"] == "success"
    world.check()
    world.executor.publishers.check()


def test_who_takes_up_its_session_keeps_its_name():
    world = world_of()
    client = world.client()
    (ack,) = client.say(c="logon", cid="on", client="feed", sequence=True)
    client.say(c="subscribe", t="orders", cid="s")
    publish(client, 1, 1)
    client.lines()
    assert world.executor.sessions.drop(client.session, world.now)
    back = world.client()
    back.say(c="logon", cid="on", client="feed", sequence=True, session=ack["session"])
    assert back.session is client.session
    assert client.session.ended is None
    assert publish(back, 2, 2)["status"] == "success"
    world.executor.publishers.check()


def test_a_name_belongs_to_the_user_who_first_used_it():
    world = world_of()
    names = world.executor.publishers
    alice, bob = Permissions(User("alice")), Permissions(User("bob"))
    client = world.client()
    names.claim(client.session, "feed", alice)
    world.settle()
    with pytest.raises(NameInUse):
        names.named("feed", bob)
    names = world.restart().executor.publishers
    with pytest.raises(NameInUse) as refused:
        names.named("feed", bob)
    assert (refused.value.reason, refused.value.status) == ("name in use", 409)
    assert names.named("feed", alice).owner == alice.owner_text
    assert names.named("feed", EVERYTHING).owner == alice.owner_text


def test_who_acts_for_a_user_has_that_users_names():
    """A user comes through a chained server or straight, and back."""
    world = world_of()
    names = world.executor.publishers
    through = Permissions(User("alice"), by=User("edge"))
    names.claim(world.client().session, "feed", through)
    world.settle()
    names = world.restart().executor.publishers
    assert names.named("feed", Permissions(User("alice"))) is not None
    with pytest.raises(NameInUse):
        names.named("feed", Permissions(User("edge")))
    with pytest.raises(NameInUse):
        names.named("feed", Permissions(User("bob"), by=User("edge")))
    assert names.named("feed", through).owner == '["alice"]'
    stored = names.named("feed", through)
    stored.restore(b'{"client":"feed","seq":1,"user":"[\\"alice\\",\\"edge\\"]"}')
    assert stored.owner == '["alice"]'


def test_a_name_that_is_not_used_expires_also_while_the_server_is_down():
    world = world_of()
    client, _ = log_on(world)
    publish(client, 1, 1)
    world.advance(3 * LASTS_US)
    assert log_on(world.restart())[1] == 1, "a live connection keeps it, also if that is killed"
    assert log_on(world)[1] == 1
    for session in list(world.executor.sessions):
        world.executor.sessions.drop(session, world.now)
    world.settle()
    world.advance(LASTS_US - SECOND)
    again = world.restart()
    assert run_to_completion(_known(again)) == 1
    world.advance(2 * SECOND)
    assert log_on(world)[1] == 0
    later = again.restart(start_us=again.now + 2 * SECOND)
    assert log_on(later)[1] == 0


def _known(world):
    yield
    return world.executor.publishers.named("feed", EVERYTHING).highest


def test_the_time_is_configured_and_may_have_no_end():
    world = world_of()
    for lasts_us, expires in ((SECOND, True), (None, False)):
        journal = replace(world.configuration.journal, sequence_expiration_us=lasts_us)
        world.engine.configuration = replace(world.configuration, journal=journal)
        client, before = log_on(world, f"feed {expires}")
        publish(client, before + 1, 1)
        world.executor.sessions.drop(client.session, world.now)
        world.settle()
        world.advance(2 * SECOND)
        assert (log_on(world, f"feed {expires}")[1] == 0) is expires


def test_names_are_bounded(monkeypatch):
    monkeypatch.setattr(publishers, "PUBLISHERS_MAX", 2)
    world = world_of()
    log_on(world, "a")
    log_on(world, "b")
    with pytest.raises(TooLarge, match="SequenceExpiration"):
        world.executor.publishers.named("c", EVERYTHING)


def test_a_user_has_a_share_of_the_names(monkeypatch):
    monkeypatch.setattr(publishers, "PUBLISHERS_MAX", 8)
    world = world_of()
    names, ann, bob = world.executor.publishers, Permissions(User("ann")), Permissions(User("bob"))

    def take(client, rights):
        steps = names.turn(lambda: names.named(client, rights), "orders", 1, 1)
        with run_to_completion(steps) as turn:
            turn.stored(1, 1)

    take("a-0", ann)
    take("a-1", ann)
    for _ in range(2):  # before they are written, and after
        with pytest.raises(TooLarge, match="of your publishers"):
            names.named("a-2", ann)
        world.settle()
    names.named("a-1", ann)
    take("b-0", bob)
    take("b-1", bob)
    with pytest.raises(TooLarge, match="of your publishers"):
        names.named("b-2", bob)
    world.settle()
    again = world.restart().executor.publishers
    with pytest.raises(TooLarge, match="of your publishers"):
        again.named("a-2", ann)
    again.named("c", EVERYTHING)
    world.advance(2 * LASTS_US)
    take("a-2", ann)
    names.check()


def turn(world, first, count, answer=None):
    names = world.executor.publishers
    steps = names.turn(
        lambda: names.named("http", EVERYTHING), "orders", first, count, answer=answer
    )
    return run_to_completion(steps)


def test_the_last_request_is_answered_again_also_after_a_restart():
    world = world_of()

    def told(bookmark):
        return NumberedAnswer({"published": 2, "bookmark": str(bookmark)})

    with turn(world, 1, 2, told) as first:
        first.stored(1, 10)
        assert world.executor.publishers.answered(first) is None
        first.stored(1, 11)
    world.settle()
    for again in (world, world.restart()):
        with turn(again, 1, 2) as second:
            assert second.is_duplicate
            found = again.executor.publishers.answered(second)
            assert found == told(11)
        with turn(again, 2, 1) as other:
            assert again.executor.publishers.answered(other) is None
        again.executor.publishers.check()
    with pytest.raises(SequenceGap), turn(world, 5, 1):
        pass
    with pytest.raises(ClientError), turn(world, 0, 1):
        pass


def test_two_requests_of_one_name_take_turns():
    world = world_of()
    names = world.executor.publishers
    with turn(world, 1, 2):
        waiting = names.turn(lambda: names.named("http", EVERYTHING), "orders", 1, 2)
        next(waiting)
    second = run_to_completion(waiting)
    assert not second.is_duplicate
    with second:
        second.stored(2, 1)
    assert names.named("http", EVERYTHING).highest == 2
    names.check()
    world.settle()
    assert names.named("http", EVERYTHING).highest == 2
