"""The pages about the whole server: topics, sessions, plans, the configuration, pipelines."""

from dataclasses import replace

import msgspec
import pytest

from sow.config import require
from sow.core.pipelines import Pipeline, Sink, Source
from sow.query.answers import ADVISE_ROWS
from sow.server.api.nodes import Upstream
from sow.server.api.response_schemas import FailOverStatus, SharedLogStatus
from tests.browser.looking import TOPICS, looked, publishing
from tests.edge.serving import Running, configuration

pytestmark = pytest.mark.browser


def test_all_topics_are_listed_with_what_they_hold(console):
    console.open()
    console.until("() => document.querySelector('#topics tbody tr')")
    found = {row[0].split()[-1]: row for row in console.cells("#topics")}
    assert found["orders"][1:5] == ["topic", "json", "", "3"]
    assert found["orders-C"][1:4] == ["conflated of orders", "json", "100 ms"]


def test_topics_of_a_pattern_are_folded_under_it(console, server):
    server.publish("desk/1", {"id": 1})
    server.publish("desk/2", {"id": 1}, {"id": 2})
    console.open()
    console.page.get_by_role("button", name="Topics of desks").click()
    console.page.get_by_role("link", name="desk/2").wait_for()
    # Other tests of the run have made some, too.
    names = [one["name"] for one in server.get("/v1/topics").json]
    count = sum(name.startswith("desk/") for name in names)
    assert f"{count} topics" in console.text("#topics")
    console.page.get_by_role("button", name="Topics of desks").click()
    console.page.get_by_role("link", name="desk/2").wait_for(state="detached")


def test_topics_of_a_pattern_are_requested_for_while_one_looks_at_them(console, server):
    server.publish("desk/1", {"id": 1})
    requested = "() => performance.getEntriesByType('resource').map((one) => one.name)"
    console.open()
    console.page.get_by_role("button", name="Topics of desks").wait_for()
    first = [url for url in console.page.evaluate(requested) if "/v1/topics" in url]
    lists = [url for url in first if not url.endswith("/rates")]
    assert {url.partition("?")[2] for url in lists} == {"members=false"}
    console.page.get_by_role("searchbox", name="Find a topic").fill("desk/1")
    console.page.get_by_role("link", name="desk/1").wait_for()


VERY_MANY = """
const asked = window.fetch;
window.fetch = async (url, ...more) => {
  const answer = await asked(url, ...more);
  if (new URL(url, location).pathname !== "/v1/topics") return answer;
  const [one] = await answer.json();
  const topics = [...Array(10_000).keys()].map((number) => ({...one, name: `t${number}`}));
  return new Response(JSON.stringify(topics), answer);
};
"""
"""A server of ten thousand topics."""


def test_very_many_topics_are_found_by_name(console):
    console.page.add_init_script(VERY_MANY)
    console.open()
    console.page.get_by_text("9,500 more: find them by name").wait_for()
    assert len(console.page.locator("#topics tbody tr").all()) == 501
    console.page.get_by_role("searchbox", name="Find a topic").fill("t9999")
    console.page.get_by_role("link", name="t9999").wait_for()
    # The server has no rates of topics that only this page has.
    console.expected = "404"


def test_rates_are_those_at_which_is_published(console, server):
    console.open()
    with publishing(server, 5):
        console.until(
            """() => [...document.querySelectorAll("#topics tbody tr")].some(({cells}) =>
              cells[0].textContent.trim() === "orders" && Number(cells[5].textContent) > 0)"""
        )


def test_sessions_are_shown_with_their_queues_and_can_be_closed(console, server):
    with server.socket() as ws:
        ws.ask({"c": "logon", "client": "grid 7"})
        ws.ask({"c": "subscribe", "t": "orders", "opts": "conflation=1h", "filter": "/price > 1"})
        console.open("sessions")
        console.page.locator("#sessions").get_by_role("link", name="grid 7").click()
        console.page.get_by_label("What the session follows").get_by_text("/price > 1").wait_for()
        why = console.page.get_by_label("Why")
        why.get_by_text("nothing waits for it: it keeps up").wait_for()
        for price in (2, 3, 4):
            server.publish("orders", {"id": 1, "price": price})
        why.get_by_text("updates in 3, out 0, waiting 1").wait_for()
        row = console.page.locator("#sessions tr", has_text="grid 7")
        row.get_by_text("127.0.0.1").wait_for()
        row.get_by_role("button", name="conflate on").click()
        row.get_by_role("button", name="conflate off").wait_for()
        why.get_by_text("switched off").wait_for()
        row.get_by_role("button", name="disconnect").click()
        console.page.get_by_role("dialog").get_by_role("button", name="Disconnect").click()
        gone = console.page.locator("#gone tr", has_text="grid 7")
        gone.get_by_text("closed by an operator").wait_for()
        why.get_by_text("closed by an operator").wait_for()
    # Who asks for it in the moment in which it ends is told that it is not there.
    console.expected = "404"


def test_sessions_are_found_sorted_and_say_who_from_where_since_when(console, server):
    with server.socket() as one, server.socket() as other:
        one.ask({"c": "logon", "client": "zed"})
        other.ask({"c": "logon", "client": "grid 7"})
        other.ask({"c": "subscribe", "t": "orders"})
        console.open("sessions")
        console.page.locator("#sessions").get_by_role("link", name="zed").wait_for()
        names = """() => [...document.querySelectorAll("#sessions tbody tr")]
          .map((row) => row.cells[0].textContent)"""
        for column, first in (("client", "grid 7"), ("follows", "grid 7"), ("follows", "zed")):
            head = console.page.locator("#sessions th", has_text=column)
            head.get_by_role("button").click()
            console.until(f"([first]) => ({names})()[0] === first", first)
        console.page.get_by_label("Find a session").fill("GRID")
        console.until(f"() => ({names})().length === 1")
        console.page.locator("#sessions").get_by_role("link", name="grid 7").click()
        who = console.page.locator("#who", has_text="without a log-on, from 127.0.0.1, since ")
        who.wait_for()
        assert who.locator("time").get_attribute("datetime").startswith("20")
        assert "sort=follows" in console.page.url
        console.page.get_by_label("Find a session").fill("nobody")
        console.page.get_by_text("No client, user or address has that in its name.").wait_for()


def test_the_first_page_says_who_was_closed_lately(console, server):
    with server.socket() as ws:
        ws.ask({"c": "logon", "client": "lately"})
        (session,) = [one for one in server.get("/v1/sessions").json if one["client"] == "lately"]
        server.request("DELETE", f"/v1/sessions/{session['id']}")
        console.open()
        console.page.locator("#health .bad", has_text="closed in ten minutes").wait_for()


def test_a_query_is_explained(console, server):
    console.open("explain", "orders", filter="/symbol = 'ACME' AND /price > 10.5")
    console.page.locator("#plan").wait_for()
    terms = console.cells("#plan")
    assert terms[0] == ["/symbol = 'ACME'", "hash(/symbol)", "2"]
    assert console.text("#rows-touched") in ("1", "2")
    assert "2 records left" in console.text("#plan-why")
    server.publish("orders", *({"id": n, "price": n} for n in range(ADVISE_ROWS)))
    console.open("explain", "orders", filter="/price = 10")
    console.page.locator("#advice", has_text="a HashIndex on /price would serve this").wait_for()
    box = console.page.get_by_role("combobox", name="Filter")
    box.fill("/id >")
    box.press("Enter")
    console.page.locator(".echo .wrong").wait_for(state="attached")
    # The browser says so, too.
    console.expected = "400"


def test_the_configuration_is_shown_with_what_is_wrong_and_read_again(console, server):
    whole = server.path.read_text()
    console.open("config")
    console.page.locator("#verdict", has_text="valid").wait_for()
    assert "Name" in console.page.locator(".listing").inner_text()
    console.page.get_by_role("button", name="Reload").click()
    console.page.locator("#changes", has_text="nothing has changed").wait_for()
    try:
        assert console.page.locator("#difference td", has_text="100ms").count() == 0
        server.path.write_text(whole.replace("100ms", "250ms", 1))
        console.page.reload()
        slower = console.page.locator("#difference tr", has_text="interval_us")
        slower.wait_for()
        assert [one.strip() for one in slower.locator("td").all_inner_texts()] == [
            "100000",
            "250000",
        ]
        console.page.get_by_role("button", name="Reload").click()
        console.page.locator("#changes", has_text="orders-C").wait_for()
        slower.wait_for(state="detached")
        assert server.get("/v1/topics/orders-C").json["interval_ms"] == 250
        server.path.write_text(whole.replace("<SOW>", "<SOW>\n<Tpoic/>\n", 1))
        console.page.reload()
        console.page.locator(".finding", has_text="Tpoic").wait_for()
        assert console.page.get_by_role("button", name="Reload").is_disabled()
    finally:
        server.path.write_text(whole)
        server.request("POST", "/v1/config/reload")


def test_pipelines_are_shown_with_how_they_run(browser, tmp_path):
    source, sink = Source(format="sow", topic="orders"), Sink(topic="bars")
    bars = Pipeline(name="bars", sources=(source,), sink=sink, autostart=True)
    running = Running(replace(configuration(TOPICS), pipelines=(bars,)), tmp_path / "data")
    note = running.server.board.note
    try:
        known = {"state": "failed", "error": "no such topic", "rows_per_s": 1200, "run": 3}
        running.call(lambda: note("bars", **known, behind=7, behind_s=1.5, dead_letters=2))
        runs = []

        def restart(run):
            runs.append(run)
            note("bars", state="restarting")
            return 4

        running.server.board.offer("bars", restart)
        with looked(browser, running.url + "/") as console:
            console.open("pipelines")
            console.page.locator("#pipelines td").first.wait_for()
            (row,) = console.cells("#pipelines")
            assert row[0] == "bars"
            figures = ["1,200", "7", "1.5 s", "2"]
            assert row[4:] == ["failed", *figures, "no such topic", "restart"]
            console.page.get_by_role("button", name="restart").click()
            console.page.get_by_text("restarting").wait_for()
            assert runs == [3]
    finally:
        running.close()


def test_a_server_that_was_away_is_no_problem_any_more_when_it_is_back(console):
    console.open()
    console.page.get_by_role("link", name="orders", exact=True).wait_for()
    away = "() => { window.there = fetch; window.fetch = () => Promise.reject(new TypeError()); }"
    console.page.evaluate(away)
    console.page.get_by_role("alert").get_by_text("The server does not answer").wait_for()
    console.page.evaluate("() => { window.fetch = window.there; }")
    console.page.get_by_role("alert").wait_for(state="detached")


def test_what_others_keep_in_the_tab_does_not_matter(console):
    console.open()
    console.page.evaluate("() => sessionStorage.setItem('sow-credentials', '{half')")
    console.page.reload()
    console.page.get_by_role("link", name="orders", exact=True).wait_for()


LIVE = '<Environment colour="red">production</Environment>'


def test_everybody_sees_which_server_it_is_and_what_it_is_for(browser, tmp_path):
    path = tmp_path / "config.xml"
    path.write_text(f"<SOWConfig><Name>desk</Name>{LIVE}<SOW>{TOPICS}</SOW></SOWConfig>")
    running = Running(replace(require(str(path)), port=0), tmp_path / "data")
    try:
        with looked(browser, running.url + "/") as console:
            console.open()
            console.page.locator("header .environment.red").wait_for()
            assert console.text("header .server").split() == ["desk", "production"]
            console.until("() => document.title === 'Topics · desk · production'")
    finally:
        running.close()


def test_the_nodes_of_a_log_are_a_tree_beside_the_sessions(browser, server, tmp_path):
    edge = Running(configuration(""), tmp_path, upstream=Upstream(server.url))
    try:
        with looked(browser, edge.url + "/") as console:
            console.open("sessions")
            console.until("() => document.querySelectorAll('#nodes tbody tr').length === 2")
            primary, chained = console.cells("#nodes")
            assert (primary[0], primary[1]) == (server.url, "primary")
            assert (chained[0], chained[1], chained[5]) == (edge.url, "chained", "")
            # The log is one of its own.
            assert console.page.locator("#shared-log").count() == 0
    finally:
        edge.close()


WHY = "a was not heard for 5.2 s"
LOG = SharedLogStatus(
    engine="nats", role="primary", node="b", leader="b", term=3, silent_ms=400, stale=False
)
FAILOVER = FailOverStatus(at="2026-11-21T09:30:02Z", before="a", after="b", why=WHY)


@pytest.mark.parametrize("is_stale", [False, True])
def test_a_shared_log_says_who_leads_and_the_last_fail_over_with_its_reason(console, is_stale):
    failover, leader = (None, None) if is_stale else (FAILOVER, "b")
    log = msgspec.structs.replace(LOG, stale=is_stale, leader=leader, failover=failover)

    async def answer(route):
        await route.fulfill(body=msgspec.json.encode(log), content_type="application/json")

    console.page.route("**/v1/log/status", answer)
    console.open("sessions")
    last = console.page.locator("#failover")
    if is_stale:
        console.page.get_by_text("Nobody leads the shared log").wait_for()
        console.page.get_by_text("what it answers may be old").wait_for()
        last.get_by_text("No fail-over since this node started.").wait_for()
    else:
        console.page.get_by_text("b leads the shared log (nats, term 3)").wait_for()
        last.get_by_text(f"in place of a, because {WHY}.").wait_for()
        assert last.locator("time").get_attribute("datetime") == FAILOVER.at
