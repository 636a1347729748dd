"""A waiting user is notified that a server does not answer, by the clock of the test."""

import asyncio

from sow.cli.wait_notice import PATIENCE_S, NotifyingClient, WaitNotice
from tests.cli.conftest import TOPICS
from tests.edge.serving import Running, configuration


class Put:
    """What was put off, and whether it still stands."""

    def __init__(self, after_s, do):
        self.after_s, self.do, self.stands = after_s, do, True

    def cancel(self):
        self.stands = False


def test_it_is_said_once_what_does_not_answer_and_how_it_ends():
    said, put = [], []
    unanswered = WaitNotice(
        "http://a", said.append, lambda *given: put.append(Put(*given)) or put[-1]
    )
    unanswered.begin()
    unanswered.begin()
    assert (said, [one.after_s for one in put]) == ([], [PATIENCE_S, PATIENCE_S])
    for one in put:
        one.do()
    assert said == ["sow: no answer from http://a yet; Ctrl-C ends"]


def test_requests_of_a_command_wait_until_they_are_answered(tmp_path):
    put, said = [], []

    def later(after_s, do):
        put.append(Put(after_s, do))
        assert put[-1].stands
        do()
        return put[-1]

    async def ask(url):
        async with NotifyingClient(url, WaitNotice(url, said.append, later)) as client:
            await client.http.json("GET", "/v1/topics")

    running = Running(configuration(TOPICS), tmp_path)
    try:
        asyncio.run(ask(running.url))
    finally:
        running.close()
    assert said == [f"sow: no answer from {running.url} yet; Ctrl-C ends"]
    assert put
    assert not any(one.stands for one in put)
