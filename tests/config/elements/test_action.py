"""`<Actions>` as elements: what each one sets, and which modules of AMPS do not run.

The moments of an `Every`: of cron by its rules, of an interval from 1970 on, and never by a
clock.
"""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.config.diagnostics import MistakeError
from sow.config.elements.action import FOREIGN_MODULES, moments
from sow.core.action_definitions import ActionDeed, ActionTrigger
from tests.cases import all_cases
from tests.config.conftest import ORDERS

ECHO = (
    "<Do><Module>amps-action-do-echo-message</Module><Options><Message>up</Message></Options></Do>"
)


def on(module, more=""):
    return f"<On><Module>amps-action-on-{module}</Module><Options>{more}</Options></On>"


def do(module, more=""):
    return f"<Do><Module>amps-action-do-{module}</Module><Options>{more}</Options></Do>"


def topic(more="", name="orders"):
    return f"<Topic>{name}</Topic>{more}"


def actions(*written, hosts=""):
    """A file with orders, and with these actions, each of some parts."""
    each = "".join(f"<Action>{one}</Action>" for one in written)
    return (
        f"<SOW>{ORDERS}{ORDERS.replace('orders', 'others')}</SOW><Actions>{hosts}{each}</Actions>"
    )


def made(instance, *written, **more):
    loaded = instance(actions(*written, **more))
    assert not loaded.findings, [*map(str, loaded.findings)]
    return loaded.configuration


@all_cases(
    ("module", "options", "expected"),
    [
        ("schedule", "<Every>*/5 * * * *</Every>", {"every": "*/5 * * * *"}),
        ("startup", "", {}),
        ("shutdown", "", {}),
        ("slow-client", "<Name>slow</Name>", {"name": "slow"}),
        (
            "publish-message",
            topic("<Filter>/a = 1</Filter>"),
            {"topic": "orders", "filter": "/a = 1"},
        ),
        (
            "sow-expire-message",
            topic("<MessageType>json</MessageType>"),
            {"topic": "orders", "message_type": "json"},
        ),
        ("oof-message", topic("<Type>delete</Type>"), {"topic": "orders", "type": "delete"}),
    ],
)
def test_each_trigger_is_made_of_its_module_and_options(instance, module, options, expected):
    (action,) = made(instance, on(module, options) + ECHO).actions
    expected = {"name": "action 1", **expected}
    assert action.trigger == ActionTrigger(module, **expected)
    assert action.line


@all_cases(
    ("module", "options", "expected"),
    [
        (
            "publish-message",
            topic('<Data>{"id":1}</Data><Delta>true</Delta>'),
            {"topic": "orders", "data": '{"id":1}', "delta": True},
        ),
        ("delete-sow", topic("<Filter>1=1</Filter>"), {"topic": "orders", "filter": "1=1"}),
        ("echo-message", "<Message>up</Message>", {"message": "up"}),
    ],
)
def test_each_deed_is_made_of_its_module_and_options(instance, module, options, expected):
    (action,) = made(instance, on("startup") + do(module, options)).actions
    assert action.deeds == (ActionDeed(module, **expected),)


def test_a_web_hook_has_a_host_a_time_limit_and_retries(instance):
    hook = (
        "<Do><Module>webhook</Module><Options><Url>https://Hooks.example/a?b=c</Url>"
        "<Data>up</Data><Timeout>2s</Timeout><Retries>0</Retries></Options></Do>"
    )
    hosts = "<WebhookHosts>127.0.0.1, hooks.Example</WebhookHosts>"
    found = made(instance, on("startup") + hook, hosts=hosts)
    assert found.webhook_hosts == ("127.0.0.1", "hooks.example")
    (deed,) = found.actions[0].deeds
    assert deed == ActionDeed(
        "webhook", url="https://Hooks.example/a?b=c", data="up", timeout_us=2_000_000, retries=0
    )


def test_deeds_keep_their_order_and_actions_without_a_name_get_one(instance):
    first, second = made(
        instance, on("startup") + ECHO + ECHO.replace("up", "again"), on("shutdown") + ECHO
    ).actions
    assert [deed.message for deed in first.deeds] == ["up", "again"]
    assert [first.name, second.name] == ["action 1", "action 2"]


@all_cases(
    ("written", "said"),
    [
        (on("scedule", "<Every>1h</Every>") + ECHO, "did you mean amps-action-on-schedule?"),
        (on("schedule", "<Every>often</Every>") + ECHO, "names no moments"),
        (on("startup") + do("execute-system", ""), "would run a command of the system"),
        (on("startup") + do("my-own"), "is not one of"),
        (on("startup") + ECHO + "<If><Module>x</Module></If>", "If is not available yet"),
        (on("startup"), "has no Do"),
        (ECHO, "has no On"),
        (
            on("startup")
            + "<Do><Module>webhook</Module><Options><Url>ftp://a/</Url></Options></Do>",
            "is no address of a web hook",
        ),
        (
            on("startup")
            + "<Do><Module>webhook</Module><Options><Url>http://a:b@c/</Url></Options></Do>",
            "is no address of a web hook",
        ),
    ],
)
def test_a_mistake_gets_a_sentence(instance, written, said):
    errors = [*map(str, instance(actions(written)).errors)]
    assert any(said in error for error in errors), errors


def test_hosts_are_names_alone(instance):
    (error, *_) = instance(actions(hosts="<WebhookHosts>http://a</WebhookHosts>")).errors
    assert "is no name of a host" in str(error)


def test_what_amps_does_by_other_modules_is_named_with_what_to_write(instance):
    for part, words in FOREIGN_MODULES.items():
        for word, advice in words.items():
            written = on(word) + ECHO if part == "On" else on("startup") + do(word, "<Age>7d</Age>")
            loaded = instance(actions(written))
            assert [f.instead for f in loaded.findings] == [advice], word
            assert "does not run here" in str(loaded.findings[0])
            assert loaded.configuration.actions == ()


SECOND = 1_000_000


def us(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


@all_cases(
    ("every", "after", "next_"),
    [
        ("4h", "2026-03-05 01:00:00", "2026-03-05 04:00:00"),
        ("1s", "2026-03-05 01:00:00", "2026-03-05 01:00:01"),
        ("23:30", "2026-03-05 23:29:59", "2026-03-05 23:30:00"),
        ("23:30", "2026-03-05 23:30:00", "2026-03-06 23:30:00"),
        ("7:05", "2026-12-31 08:00:00", "2027-01-01 07:05:00"),
        ("Saturday at 00:30", "2026-03-05 08:00:00", "2026-03-07 00:30:00"),
        ("sun at 7:05", "2026-03-08 07:05:00", "2026-03-15 07:05:00"),
        ("*/15 * * * *", "2026-03-05 10:15:00", "2026-03-05 10:30:00"),
        ("5/20 * * * *", "2026-03-05 10:46:00", "2026-03-05 11:05:00"),
        ("0 9-17 * * MON-FRI", "2026-03-06 17:00:00", "2026-03-09 09:00:00"),
        ("0 0 1 jan *", "2026-03-05 00:00:00", "2027-01-01 00:00:00"),
        ("0 0 * * 7", "2026-03-05 00:00:00", "2026-03-08 00:00:00"),
        ("0 0 13 * 5", "2026-03-05 00:00:00", "2026-03-06 00:00:00"),
        ("0 0 29 2 *", "2096-03-01 00:00:00", "2104-02-29 00:00:00"),
    ],
)
def test_the_next_moment_is_the_first_after_a_time(every, after, next_):
    assert moments(every)(us(after)) == us(next_)


@all_cases(
    ("every", "said"),
    [
        ("sometimes", "names no moments"),
        ("Someday at 23:59", "names no moments"),
        ("Satur at 23:59", "names no moments"),
        (" at 23:59", "names no moments"),
        ("Saturday at 24:00", "names no moments"),
        ("MON,TUE at 23:59", "names no moments"),
        ("24:00", "names no moments"),
        ("500ms", "below the shortest interval"),
        ("0", "below the shortest interval"),
        ("60 * * * *", "is no minute"),
        ("* * 0 * *", "is no day of the month"),
        ("* * * foo *", "is no month"),
        ("*/0 * * * *", "is no minute"),
        ("5-1 * * * *", "is no minute"),
        ("0 0 31 2 *", "never comes"),
        ("* * * *", "names no moments"),
    ],
)
def test_what_names_no_moments_gets_a_sentence(every, said):
    with pytest.raises(MistakeError) as failure:
        moments(every)
    assert said in failure.value.message
    assert failure.value.instead


@given(st.sampled_from(["7s", "3:00", "*/7 3 * * *", "0 0 1,15 * 2"]), st.integers(0, 2**52))
def test_moments_rise_and_do_not_depend_on_where_one_begins(every, after_us):
    find = moments(every)
    next_us = find(after_us)
    assert next_us > after_us
    assert find((after_us + next_us) // 2) == next_us
    assert find(next_us - 1) == next_us
