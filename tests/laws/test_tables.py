"""Time tables say what happens, and fail with both tables when something else does."""

import pytest

from tests.laws.harness import SparkWorld, World
from tests.laws.tables import Table, play

HEAD = """
topic  quotes    Key=/symbol
copy   quotes-C  of quotes  Interval=1s
"""
TABLE = f"""{HEAD}
at 0.0  sow_and_subscribe quotes-C  opts=oof
at 0.0  publish  {{"symbol":"ACME","px":10.1}}
at 0.6  publish  {{"symbol":"ACME","px":10.3}}
at 1.0  said     p {{"symbol":"ACME","px":10.3}}
at 3.0  said     nothing
"""


@pytest.mark.parametrize("make", [World, SparkWorld])
def test_what_happens_passes(make):
    play(TABLE, make)


def fails(text):
    with pytest.raises(AssertionError) as failure:
        play(text)
    return str(failure.value)


def test_another_value_shows_the_table_with_what_was_really_sent():
    assert fails(TABLE.replace("p {", "sow {")) == "\n".join(
        [
            "the table has the rows marked -, and the clients were sent those marked +",
            "  at 0.0  sow_and_subscribe quotes-C  opts=oof",
            '  at 0.0  publish  {"symbol":"ACME","px":10.1}',
            '  at 0.6  publish  {"symbol":"ACME","px":10.3}',
            '- at 1.0  said  sow {"symbol":"ACME","px":10.3}',
            '+ at 1.0  said  p {"symbol":"ACME","px":10.3}',
        ]
    )


def test_another_moment_is_another_table():
    assert '+ at 1.0  said  p {"symbol":"ACME","px":10.3}' in fails(
        TABLE.replace("at 1.0", "at 1.02")
    )


def test_what_is_sent_and_not_written_is_found():
    written = TABLE.splitlines()
    del written[-2]
    assert '+ at 1.0  said  p {"symbol":"ACME","px":10.3}' in fails("\n".join(written))


def test_what_is_written_and_not_sent_is_found():
    assert "- at 3.0  said  close" in fails(TABLE.replace("nothing", "close"))


def test_what_comes_after_the_last_row_is_not_looked_at():
    play(TABLE.partition("at 1.0")[0])


def test_a_command_that_is_refused_is_no_table():
    assert "no topic 'nowhere'" in fails("at 0.0 subscribe nowhere")


def test_several_followers_are_sent_apart_and_a_moment_may_go_on():
    play("""
    at 0.5  early: subscribe orders
            publish {"id":1} {"id":2}
            early: said p {"id":1}  p {"id":2}
            late: sow orders filter="/id > 1"
            late: said sow {"id":2}
    """)


def test_a_follower_that_has_stopped_gets_everything_once_it_reads():
    play("""
    sessions  QueueMaxMessages=2
    topic     t  Key=/id

    at 0.0  sow_and_delta_subscribe
            stop
            publish {"id":1,"a":"xxxxxxxxxxxxxxxxxxxxxxxxxx","b":1}
            publish {"id":1,"a":"xxxxxxxxxxxxxxxxxxxxxxxxxx","b":2}
    at 5.0  read
            said p {"id":1,"a":"xxxxxxxxxxxxxxxxxxxxxxxxxx","b":1}  delta {"id":1,"b":2}
            delta_publish {"id":1,"b":3}
            said delta {"id":1,"b":3}
            stop
            publish {"id":2} {"id":3} {"id":4}
    at 7.0  publish {"id":5}
    at 8.0  read
            said close
    """)


def test_what_waits_is_conflated_when_the_table_says_so():
    play("""
    topic  t  Key=/id
    at 0.0  subscribe
            stop
            publish {"id":1,"v":1}
            publish {"id":1,"v":2}
            conflate
            read
            said p {"id":1,"v":2}
    """)


def test_a_subscription_that_is_given_up_says_why():
    play("""
    sessions  QueueMaxMessages=2
    topic     t  Key=/id  ConflationPolicy=unsubscribe
    at 0.0  subscribe
            stop
            publish {"id":1} {"id":2} {"id":3}
            read
            said unsubscribed BACK_PRESSURE
    """)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("at noon  publish {}", "no row of a time table"),
        ("at 1.0 publish {}\nat 0.5 publish {}", "earlier than the row above"),
    ],
)
def test_a_row_that_cannot_be_is_named(text, what):
    with pytest.raises(ValueError, match=what):
        Table(text)


def test_a_head_that_no_configuration_may_have_is_sent_as_sow_check_reports_it():
    with pytest.raises(ValueError, match="Intervall"):
        play(TABLE.replace("Interval=", "Intervall="))
