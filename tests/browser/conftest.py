"""One server with its console for all tests of a run; each of them finds the same three orders."""

from dataclasses import replace

import pytest

from sow.config import require as required
from sow.config import review
from tests.browser.looking import TOPICS, looked
from tests.edge.serving import Running

ORDERS = [
    {"id": 1, "symbol": "ACME", "price": 10.25},
    {"id": 2, "symbol": "BETA", "price": 99.5},
    {"id": 3, "symbol": "ACME", "price": 11},
]


@pytest.fixture(scope="package")
def running(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    path = directory / "config.xml"
    path.write_text(f"<SOWConfig><Name>test</Name><SOW>{TOPICS}</SOW></SOWConfig>")

    def read():
        return replace(required(str(path)), port=0)

    server = Running(
        read(),
        directory / "data",
        reread=read,
        look=lambda: review(str(path)),
    )
    server.path = path
    yield server
    server.close()


def leave_nobody(sessions):
    """Close the sessions of other tests, which a page would list."""
    for session in [*sessions]:
        sessions.close_for(session, "by the next test")


@pytest.fixture
def server(running):
    running.clear()
    running.call(lambda: leave_nobody(running.server.executor.sessions))
    # Tests of other folders come between: what they had logged is theirs.
    running.errors.clear()
    running.publish("orders", *ORDERS)
    yield running
    # Playwright logs, too: of what a page asks for that is left in that moment.
    assert [error for error in running.errors if "playwright" not in error] == []


@pytest.fixture
def console(browser, server):
    with looked(browser, server.url + "/") as found:
        yield found
