"""Actions at work: what sets them off, what they do, where and how often they run, and what they
cost."""

from dataclasses import replace

import pytest

from sow.core.action_definitions import ActionDeed, ActionDefinition, ActionTrigger
from sow.core.definitions import ACTION_RUNS, AUDIT, LEASES, Topic
from sow.engine import action_runs
from sow.engine.following import FollowingEngine
from sow.errors import ClientError, StoreFailing, TooLarge
from sow.sessions.commands import actions
from sow.sessions.commands.actions import PAUSE_US_MAX
from sow.sessions.commands.executor import Executor
from tests.cases import all_cases
from tests.laws.harness import MS, ORDERS, SECOND, World

DONE = Topic("done", "json", keys=("/id",))
SHORT = replace(ORDERS, expires=True, expiration_us=10 * SECOND)
NOTE = ActionDeed(
    "publish-message", topic="done", data='{"id":"{{AMPS_SOW_KEY}}","d":{{AMPS_DATA}}}'
)
COPY = ActionDeed("publish-message", topic="done")
TICK = ActionDeed("publish-message", topic="done", data='{"id":1}')
HOOK = ActionDeed("webhook", url="http://hook/", retries=2)


def action(kind, *deeds, **more):
    more = {"name": kind, **more}
    return ActionDefinition(ActionTrigger(kind, **more), deeds)


class Hook:
    """What stands for web hooks: calls that are answered when a test says so."""

    def __init__(self, world):
        self.calls = []
        world.lines, world.warnings = [], []
        world.executor.actions.post_by(self.post, world.lines.append, world.warnings.append)
        world.hook = self

    def post(self, call, answered):
        self.calls.append((call, answered))

    def answer(self, world, why=""):
        call, answered = self.calls.pop(0)
        answered(why, world.now)
        world.settle()
        return call


def world(*actions, orders=ORDERS, **more):
    found = World(orders, DONE, AUDIT, ACTION_RUNS, LEASES, actions=actions, **more)
    Hook(found)
    run(found)
    return found


def again(before, **more):
    """The next life of the process."""
    found = before.restart(**more)
    Hook(found)
    run(found)
    return found


def run(world, by_us=0):
    world.settle()
    world.advance(by_us)
    world.check()


def runs(world):
    """What the audit says of runs."""
    return [
        (one["action"], one["trigger"], one["outcome"])
        for one in world.records(AUDIT.name)
        if one["deed"] == "action"
    ]


def done(world):
    return world.records("done")


# What sets them off.


def test_a_publish_sets_its_action_off_with_the_message_as_it_is_stored():
    here = world(action("publish-message", NOTE, topic="orders"))
    here.publish("orders", {"id": 1, "a": 1}, {"id": 2})
    here.publish("orders", {"id": 1, "b": 2}, delta=True)
    run(here)
    first, second = (here.sow_key("orders", key) for key in "12")
    assert done(here) == [
        {"id": first, "d": {"id": 1, "a": 1, "b": 2}},
        {"id": second, "d": {"id": 2}},
    ]
    assert runs(here) == [("publish-message", "publish-message", "done")] * 3


def test_a_filter_says_which():
    here = world(action("publish-message", COPY, topic="orders", filter="/a = 1"))
    here.publish("orders", {"id": 1, "a": 1}, {"id": 2, "a": 2})
    run(here)
    assert done(here) == [{"id": 1, "a": 1}]


def test_an_expiry_sets_its_action_off_with_the_last_state():
    here = world(action("sow-expire-message", COPY, topic="orders"), orders=SHORT)
    here.publish("orders", {"id": 1}, {"id": 2})
    here.delete("orders", "/id = 2")
    run(here, 9 * SECOND)
    assert done(here) == []
    run(here, SECOND)
    assert done(here) == [{"id": 1}]
    assert here.records("orders") == []


@all_cases(("type_", "ids"), [("all", [1, 2, 3]), ("match", [1]), ("delete", [2]), ("expire", [3])])
def test_a_record_that_leaves_its_focus_sets_an_action_off(type_, ids):
    one = action("oof-message", COPY, topic="orders", filter="/open = 1", type=type_)
    here = world(one, orders=SHORT)
    here.publish("orders", *({"id": id_, "open": 1} for id_ in (1, 2, 3)), {"id": 4, "open": 0})
    here.publish("orders", {"id": 1, "open": 0})
    here.delete("orders", "/id = 2")
    here.delete("orders", "/id = 4")
    run(here, 20 * SECOND)
    assert [one["id"] for one in done(here)] == ids


def test_a_schedule_runs_at_its_moments_by_the_time_that_it_is_given():
    here = world(action("schedule", TICK, every="10s"))
    run(here, 9 * SECOND)
    assert runs(here) == []
    run(here, 31 * SECOND)
    assert len(runs(here)) == 4


def test_starts_and_stops_set_actions_off():
    here = world(action("startup", TICK), action("shutdown", COPY_OF_STOP))
    assert done(here) == [{"id": 1}]
    here.executor.actions.shut_down()
    assert here.executor.actions.ends
    run(here)
    assert done(here) == [{"id": 1}, {"id": 2}]
    assert not here.executor.actions.ends


COPY_OF_STOP = ActionDeed("publish-message", topic="done", data='{"id":2}')


def test_slow_clients_set_an_action_off_once_a_second_with_the_sentence_of_the_log():
    echo = ActionDeed("echo-message", message="slow: {{AMPS_DATA}}")
    here = world(action("slow-client", echo))
    for _ in range(3):
        here.executor.actions.note_slow_client("session 1 is closed\nforged line")
    run(here, SECOND)
    assert here.lines == ["action slow-client: slow: session 1 is closed forged line"]
    here.engine.sequencer.moment(here.now)
    here.executor.actions.note_slow_client("session 2")
    run(here)
    assert len(here.lines) == 2


# What they do.


def test_records_are_deleted_by_a_filter_which_no_value_of_a_message_can_widen():
    bare = replace(ORDERS, keys=(), hash_indexes=())
    deed = ActionDeed("delete-sow", topic="done", filter="/id = '{{AMPS_SOW_KEY}}'")
    here = world(action("publish-message", deed, topic="orders"), orders=bare)
    here.publish("done", {"id": "a"}, {"id": "b"}, {"id": "x'OR'a'='a"})
    here.publish("orders", {}, key="a")
    run(here)
    assert [one["id"] for one in done(here)] == ["b", "x'OR'a'='a"]
    here.publish("orders", {}, key="x'OR'a'='a")
    run(here)
    assert done(here) == [{"id": "b"}]


def test_a_key_that_a_publisher_chooses_writes_no_more_than_a_text():
    bare = replace(ORDERS, keys=(), hash_indexes=())
    here = world(action("publish-message", NOTE, topic="orders"), orders=bare)
    here.publish("orders", {"a": 1}, key='x","admin":true,"z":"')
    run(here)
    assert done(here) == [{"id": 'x","admin":true,"z":"', "d": {"a": 1}}]


def test_in_xml_too_a_key_writes_no_more_than_a_text():
    bare = replace(ORDERS, keys=(), hash_indexes=())
    xml = Topic("xml", "xml", keys=("/m/id",))
    data = "<m><id>{{AMPS_SOW_KEY}}</id><t of='{{AMPS_TOPIC}}'/></m>"
    deed = ActionDeed("publish-message", topic="xml", data=data)
    one = action("publish-message", deed, topic="orders")
    here = World(bare, xml, AUDIT, ACTION_RUNS, actions=(one,))
    here.publish("orders", {"a": 1}, key="</id><id>'&")
    run(here)
    assert [*here.engine.topics["xml"].records.table.slots] == ["</id><id>'&"]


def test_an_action_with_very_many_runs_holds_up_no_other(monkeypatch):
    monkeypatch.setattr(actions, "RUNS_AT_ONCE", 4)
    many = action("publish-message", COPY, topic="orders")
    few = action("publish-message", TICK, topic="few")
    few = replace(few, trigger=replace(few.trigger, name="few"))
    here = World(ORDERS, DONE, replace(ORDERS, name="few"), AUDIT, ACTION_RUNS, actions=(many, few))
    here.engine.publish("orders", [b'{"id":%d}' % n for n in range(100)], here.now)
    here.engine.publish("few", [b'{"id":1}'], here.now)
    here.executor.actions.advance(here.now)
    assert [name for name, _, _ in runs(here)] == ["publish-message"] * 2 + ["few"]


HOSTILE = [
    "x'OR'a'='a", '"', "\\", "%", ".*", "a|b", "(", "\\E(", "^$", "(?i)A", "{{AMPS_TOPIC}}",
    "." * 512,
]  # fmt: skip


@all_cases(
    "condition",
    [
        "/id = '{{AMPS_SOW_KEY}}'",
        '/id IN (r"{{AMPS_SOW_KEY}}", "none")',
        "/id LIKE '^{{AMPS_SOW_KEY}}$'",
        r"/id LIKE r'^{{ AMPS_SOW_KEY }}\z'",
    ],
)
def test_a_value_in_a_filter_is_data_whatever_it_is_written_with(condition):
    bare = replace(ORDERS, keys=(), hash_indexes=())
    deed = ActionDeed("delete-sow", topic="done", filter=condition)
    here = world(action("publish-message", deed, topic="orders"), orders=bare)
    here.publish("done", *({"id": id_} for id_ in ["a", "b", *HOSTILE]))
    for at, key in enumerate(HOSTILE, 1):
        here.publish("orders", {}, key=key)
        run(here)
        assert [one["id"] for one in done(here)] == ["a", "b", *HOSTILE[at:]]


@pytest.mark.parametrize("key", ["a\nb", "a\0b", "é", "a b", "a" * 1_000_000])
def test_what_a_filter_could_not_take_is_no_key(key):
    here = world(orders=replace(ORDERS, keys=(), hash_indexes=()))
    with pytest.raises(ClientError, match="cannot be a SowKey"):
        here.publish("orders", {}, key=key)


def test_many_records_are_deleted_in_steps_while_other_actions_go_on():
    delete = ActionDeed("delete-sow", topic="done", filter="/id > 0")
    here = world(action("publish-message", delete, topic="orders"))
    here.publish("done", *({"id": id_} for id_ in range(3_000)))
    here.publish("orders", {"id": 1})
    run(here)
    assert done(here) == [{"id": 0}]
    assert runs(here) == [("publish-message", "publish-message", "done")]


def test_deeds_are_done_in_order_and_one_that_fails_ends_the_run():
    bad = ActionDeed("publish-message", topic="done", data="no json")
    here = world(action("startup", TICK, bad, COPY_OF_STOP))
    assert done(here) == [{"id": 1}]
    ((_, _, outcome),) = runs(here)
    assert outcome.startswith("failed: ")
    assert here.warnings[0].startswith("action startup has failed: message 0 is not a JSON object")


def test_a_web_hook_gets_the_message_and_the_run_goes_on_when_it_has_answered():
    here = world(action("publish-message", HOOK, COPY, topic="orders"))
    here.publish("orders", {"id": 1}, {"id": 2})
    run(here, 60 * SECOND)
    assert len(here.hook.calls) == 1  # the second run waits for the first
    call = here.hook.answer(here)
    assert (call.url, call.body, call.timeout_us) == ("http://hook/", b'{"id":1}', 5 * SECOND)
    run(here)
    assert done(here) == [{"id": 1}]
    assert here.hook.answer(here).run != call.run
    run(here)
    assert [outcome for _, _, outcome in runs(here)] == ["done", "done"]


def test_a_web_hook_is_called_again_after_pauses_and_then_given_up():
    here = world(action("startup", HOOK))
    first = here.hook.answer(here, "down")
    run(here, 999 * MS)
    assert not here.hook.calls
    run(here, MS)
    assert here.hook.answer(here, "down") == first
    run(here, 2 * SECOND)
    here.hook.answer(here, "it is down")
    run(here, 10 * PAUSE_US_MAX)
    assert not here.hook.calls
    assert runs(here) == [("startup", "startup", "failed: it is down")]


# Where, and how often.


def test_what_has_run_is_not_repeated_by_a_restart_and_what_waits_goes_on():
    here = world(action("publish-message", TICK, HOOK, COPY, topic="orders"))
    here.publish("orders", {"id": 7})
    run(here)
    here.publish("done", {"id": 1, "since": True})
    old = here.hook.calls[0][0]
    here = again(here)
    (call, _) = here.hook.calls[0]
    assert call == old  # the same run, so that the other side can tell
    here.hook.answer(here)
    run(here)
    assert done(here) == [{"id": 1, "since": True}, {"id": 7}]
    here = again(here)
    assert not here.hook.calls
    assert len(runs(here)) == 1


def test_a_cause_and_its_run_are_in_one_group_so_that_a_crash_leaves_both_or_neither():
    here = world(action("publish-message", COPY, topic="orders"))
    here.engine.publish("orders", [b'{"id":1}'], here.now)  # and the disk never gets it
    here = again(here)
    assert (here.records("orders"), done(here)) == ([], [])
    here.engine.publish("orders", [b'{"id":2}'], here.now)
    here.settle()  # stored, and not carried out
    here = again(here)
    assert done(here) == [{"id": 2}]


@all_cases("away_s", [5, 100])
def test_a_moment_that_was_missed_runs_once(away_s):
    here = world(action("schedule", TICK, every="10s"))
    run(here, 10 * SECOND)
    here = again(here, start_us=here.now + away_s * SECOND)
    assert len(runs(here)) == 1 + (away_s > 10)
    run(here, 10 * SECOND)
    assert len(runs(here)) == 2 + (away_s > 10)


def test_a_clock_that_was_set_back_repeats_no_moment():
    here = world(action("schedule", TICK, every="10s"))
    run(here, 30 * SECOND)
    here = again(here, start_us=here.now - 20 * SECOND)
    assert len(runs(here)) == 3


def test_a_schedule_with_another_text_or_that_was_away_has_missed_nothing():
    here = world(action("schedule", TICK, every="10s"))
    here = again(
        here, start_us=here.now + 100 * SECOND, actions=(action("schedule", TICK, every="7s"),)
    )
    assert runs(here) == []
    here = again(here, actions=())
    here = again(
        here, start_us=here.now + 100 * SECOND, actions=(action("schedule", TICK, every="7s"),)
    )
    assert runs(here) == []


def test_a_reload_adds_changes_and_removes_actions():
    here = world()
    first = action("publish-message", COPY, topic="orders")
    tick = action("schedule", TICK, every="10s")

    def reload(*actions):
        changed = here.executor.reconfigure(replace(here.configuration, actions=actions), here.now)
        run(here)
        return changed

    assert reload(first, tick, action("startup", HOOK)) == ["actions changed"]
    assert not here.hook.calls  # it has started long ago
    here.publish("orders", {"id": 5})
    run(here, 10 * SECOND)
    assert done(here) == [{"id": 5}, {"id": 1}]
    reload(action("publish-message", HOOK, topic="orders"))
    here.publish("orders", {"id": 6})
    run(here, 100 * SECOND)
    assert done(here) == [{"id": 5}, {"id": 1}]
    assert reload() == ["actions changed"]
    here.hook.answer(here, "down")
    here.publish("orders", {"id": 7})
    run(here, 10 * SECOND)
    assert runs(here)[-1][2].startswith("left out: the configuration has no such action")


def test_runs_are_counted_by_what_became_of_them_with_their_time(monkeypatch):
    monkeypatch.setattr(action_runs, "RUNS_MAX", 2)
    hook = replace(HOOK, retries=0)
    here = world(action("publish-message", hook, topic="orders"))
    here.publish("orders", *({"id": id_} for id_ in (1, 2, 3)))
    run(here)
    figures = here.executor.actions.figures["publish-message"]
    assert (figures.left_out, here.executor.actions.waiting()) == (1, {"publish-message": 2})
    here.advance(2 * SECOND)
    here.hook.answer(here)
    run(here)
    here.hook.answer(here, "it answers 500")
    assert (figures.done, figures.failed, figures.left_out) == (1, 1, 1)
    assert round(figures.times.sum_s) == 4
    assert here.executor.actions.waiting() == {"publish-message": 0}


def test_a_server_that_follows_runs_nothing_until_it_leads():
    first = world(action("startup", TICK), action("publish-message", COPY, topic="orders"))
    engine = FollowingEngine(first.configuration, "http://primary")
    executor = Executor(engine, first.journal, lambda: "name")
    executor.actions.begin()
    executor.actions.shut_down()
    assert not executor.actions.runs.waiting
    assert not engine.topics["orders"].queues
    engine.lead(0)
    assert [*executor.actions.runs.waiting] == ["startup"]
    assert len(engine.topics["orders"].queues) == 1


# What they cost.


def test_a_web_hook_that_is_away_leaves_out_what_has_no_room_and_says_so(monkeypatch):
    monkeypatch.setattr(action_runs, "RUNS_MAX", 3)
    here = world(action("publish-message", HOOK, topic="orders"))
    here.publish("orders", *({"id": id_} for id_ in range(5)))
    run(here)
    ((_, _, outcome),) = runs(here)
    assert outcome.startswith("left out: ")
    assert "2 found no room" in outcome
    for _ in range(3):
        here.hook.answer(here)
        run(here)
    assert len(runs(here)) == 4


def test_a_topic_without_actions_has_none_of_this():
    here = world(
        action("publish-message", COPY, topic="orders"), action("oof-message", TICK, topic="orders")
    )
    assert not here.engine.topics["done"].queues
    assert [*here.engine._watches] == ["orders"]
    here = world()
    assert not here.engine._watches
    assert here.executor.actions not in here.engine.timers._added


def test_a_batch_that_would_make_too_many_runs_in_one_step_is_refused():
    here = world(action("publish-message", COPY, topic="orders"))
    (fed,) = here.engine.topics["orders"].queues
    fed.check_room(3_000)
    with pytest.raises(TooLarge, match="write it in several batches"):
        fed.check_room(3_001)


def test_a_disk_that_refuses_makes_runs_wait():
    here = world(action("schedule", TICK, every="10s"))
    here.engine.disk.fail(StoreFailing("the disk fails"))
    here.clock.advance(10 * SECOND)
    here.engine.advance(here.now)
    assert here.warnings == ["an action is not run: the disk fails"]
    here.engine.disk.recover()
    run(here, 2 * SECOND)
    assert done(here) == [{"id": 1}]
    assert runs(here) == [("schedule", "schedule", "done")]
