"""What somebody may do: publish, edit, delete, export, disconnect, and with the keys alone."""

import json
from dataclasses import replace

import pytest

from sow.config import require as required
from sow.security.authentication.tokens import sum_of
from tests.browser.looking import AXE, FOUND, TOPICS, looked
from tests.edge.serving import Running, records

pytestmark = pytest.mark.browser


def opened(console, server, number=2):
    """The pane of an order."""
    key = next(
        one["k"] for one in server.records("orders", meta="true") if one["d"]["id"] == number
    )
    console.open("topic", "orders", key=key, order="/id")
    pane = console.page.get_by_label("The record")
    pane.get_by_role("button", name="Edit").wait_for()
    return key, pane


def order(server, number=2):
    return next(one for one in server.records("orders") if one["id"] == number)


def test_a_record_is_edited(console, server):
    _, pane = opened(console, server)
    pane.get_by_role("button", name="Edit").click()
    box = pane.get_by_label("The record as JSON")
    document = json.loads(box.input_value())
    box.fill("{")
    pane.get_by_role("button", name="Save").click()
    pane.locator("#editor-error").wait_for()
    box.fill(json.dumps(document | {"symbol": "EDITED"}))
    pane.get_by_role("button", name="Save").click()
    pane.get_by_text('"symbol": "EDITED"').wait_for()
    assert order(server)["symbol"] == "EDITED"
    console.expected = " 400 "  # the browser says that a half document was refused


def test_an_edit_of_what_has_changed_meanwhile_shows_both(console, server):
    _, pane = opened(console, server)
    pane.get_by_role("button", name="Edit").click()
    box = pane.get_by_label("The record as JSON")
    mine = json.loads(box.input_value()) | {"symbol": "MINE"}
    box.fill(json.dumps(mine))
    server.publish("orders", {"id": 2, "symbol": "THEIRS", "price": 1})
    pane.get_by_role("button", name="Save").click()
    pane.locator("#now", has_text="THEIRS").wait_for()
    assert "MINE" in box.input_value()
    assert order(server)["symbol"] == "THEIRS"
    server.publish("orders", {"id": 2, "symbol": "AGAIN", "price": 1})
    pane.get_by_role("button", name="Save").click()
    pane.locator("#now", has_text="AGAIN").wait_for()
    pane.get_by_role("button", name="Save").click()
    pane.get_by_role("button", name="Edit").wait_for()
    assert order(server)["symbol"] == "MINE"
    console.expected = "412"


def test_a_record_is_deleted_after_a_question(console, server):
    _, pane = opened(console, server)
    pane.get_by_role("button", name="Delete").click()
    question = console.page.get_by_role("dialog")
    question.get_by_role("button", name="Cancel").click()
    question.wait_for(state="detached")
    assert order(server)
    pane.get_by_role("button", name="Delete").click()
    question.wait_for()
    console.page.keyboard.press("Escape")
    question.wait_for(state="detached")
    pane.get_by_role("button", name="Delete").click()
    question.get_by_role("button", name="Delete").click()
    pane.wait_for(state="detached")
    console.until_grid("1", "3")


def test_a_message_is_published(console, server):
    console.open("topic", "orders", order="/id")
    console.until_grid("1", "2", "3")
    console.page.get_by_role("button", name="Publish").click()
    pane = console.page.get_by_label("Publish", exact=True)
    box = pane.get_by_label("The message as JSON")
    assert json.loads(box.input_value()) == {"id": ""}
    box.fill('{"id": 4, "symbol": "NEW"}')
    pane.get_by_role("button", name="Publish").click()
    console.until_grid("1", "2", "3", "4")
    pane.wait_for(state="detached")


def test_a_record_has_its_rates(console, server):
    server.publish("orders", {"id": 77})
    opened(console, server, 77)
    console.page.locator("#record-rates").wait_for()
    server.publish("orders", {"id": 77, "price": 5})
    console.until("() => document.querySelector('#record-rates').textContent.startsWith('1 in')")


@pytest.mark.parametrize("name", ["CSV", "JSON"])
def test_the_view_is_exported(console, server, name):
    console.open("topic", "orders", filter="/id > 1", order="/id", columns="/id,/price")
    console.until_grid("2", "3")
    console.page.evaluate(SAVED)
    console.page.get_by_text("Export").click()
    console.page.get_by_role("button", name=name, exact=True).click()
    console.until("() => window.saved")
    file, text = console.page.evaluate("() => window.saved")
    assert file == f"orders.{name.lower()}"
    expected = {
        "CSV": "id,price\r\n2,99.5\r\n3,11\r\n",
        "JSON": [{"id": 2, "price": 99.5}, {"id": 3, "price": 11}],
    }[name]
    assert (text if name == "CSV" else json.loads(text)) == expected
    console.page.locator("details.menu[open]").wait_for(state="detached")


def test_a_record_is_exported(console, server):
    key, pane = opened(console, server)
    console.page.evaluate(SAVED)
    pane.get_by_role("button", name="Export").click()
    console.until("() => window.saved")
    file, text = console.page.evaluate("() => window.saved")
    assert (file, json.loads(text)) == (f"orders-{key}.json", order(server))


SAVED = """() => {
  const made = URL.createObjectURL;
  const texts = {};
  URL.createObjectURL = (blob) => {
    const url = made(blob);
    texts[url] = blob.text();
    return url;
  };
  HTMLAnchorElement.prototype.click = function () {
    texts[this.href].then((text) => (window.saved = [this.download, text]));
  };
}"""
"""Files are kept in the page instead of being saved."""


RIGHTS = {
    "<Read/>": set(),
    "<Read/><Write/>": {"Edit", "Publish"},
    "<Read/><Delete/>": {"Delete"},
}
"""What is offered beside reading, to whom may do what."""


def served(directory, verbs):
    """A server on which ann may do something with orders, and bob everything."""
    tokens = [f"{name} {sum_of(name + '-token')}" for name in ("ann", "bob")]
    (directory / "tokens").write_text("\n".join(tokens))
    security = f"""<Security><Authentication><Tokens><File>tokens</File></Tokens></Authentication>
      <Role><Name>desk</Name><Member>user:ann</Member>
        <Allow><Topic>orders</Topic>{verbs}</Allow></Role>
      <Role><Name>all</Name><Member>user:bob</Member>
        <Allow><Topic>.*</Topic><Read/><Write/><Delete/></Allow></Role></Security>"""
    config = directory / "config.xml"
    config.write_text(f"<SOWConfig><Name>t</Name>{security}<SOW>{TOPICS}</SOW></SOWConfig>")
    server = Running(replace(required(str(config)), port=0), directory / "data")
    bob = {"Authorization": "Bearer bob-token"}
    server.request("POST", records("orders"), data=b'{"id":1}', headers=bob)
    return server


@pytest.mark.parametrize("verbs", RIGHTS)
def test_what_somebody_may_do_is_offered_and_nothing_else(browser, tmp_path, verbs):
    server = served(tmp_path, verbs)
    try:
        with looked(browser, server.url + "/") as console:
            console.open("topic", "orders")
            console.page.get_by_label("or a token").fill("ann-token")
            console.page.get_by_role("button", name="Log on").click()
            console.until_grid("1")
            console.page.locator("regular-table tbody td").first.click()
            pane = console.page.get_by_label("The record")
            pane.get_by_role("button", name="Export").wait_for()
            for name in RIGHTS[verbs]:
                console.page.get_by_role("button", name=name, exact=True).wait_for()
            names = ("Edit", "Delete", "Publish")
            shown = {
                name
                for name in names
                if console.page.get_by_role("button", name=name, exact=True).count()
            }
            assert shown == RIGHTS[verbs]
            console.open("config")
            console.page.locator("#forbidden", has_text="<Allow><Admin/></Allow>").wait_for()
            console.open("topic", "book")
            console.page.locator("#absent").wait_for()
            # Sessions of others, and what the node knows of its log, are an administrator's.
            console.open("sessions")
            console.page.get_by_role("button", name="disconnect").wait_for()
            console.expected = " 40"
    finally:
        server.close()


def test_who_may_only_publish_is_told_what_is_missing(browser, tmp_path):
    server = served(tmp_path, "<Write/>")
    try:
        with looked(browser, server.url + "/") as console:
            console.page.add_init_script(AXE)
            console.open("topic", "orders")
            console.page.get_by_label("or a token").fill("ann-token")
            assert console.page.evaluate(FOUND) == []
            console.page.get_by_role("button", name="Log on").click()
            console.page.locator("#forbidden", has_text="<Allow><Read/></Allow>").wait_for()
            assert console.page.get_by_role("button", name="Export").count() == 0
            console.page.get_by_role("button", name="Publish").click()
            pane = console.page.get_by_label("Publish", exact=True)
            pane.get_by_label("The message as JSON").fill('{"id": 8}')
            pane.get_by_role("button", name="Publish").click()
            pane.wait_for(state="detached")
            bob = {"Authorization": "Bearer bob-token"}
            found = server.request("GET", records("orders"), headers=bob).json
            assert [one["id"] for one in found] == [1, 8]
            assert console.page.evaluate(FOUND) == []
            console.open("config")
            console.page.locator("#forbidden").wait_for()
            assert console.page.evaluate(FOUND) == []
            console.expected = " 40"
    finally:
        server.close()


def test_a_session_is_disconnected_after_a_question_that_says_whose_it_is(console, server):
    with server.socket() as ws:
        ws.ask({"c": "logon", "client": "grid 7"})
        console.open("sessions")
        row = console.page.get_by_role("row").filter(has_text="grid 7")
        row.get_by_role("button", name="disconnect").click()
        question = console.page.get_by_role("dialog")
        assert "Disconnect grid 7 from 127.0.0.1" in question.inner_text()
        question.get_by_role("button", name="Cancel").click()
        question.wait_for(state="detached")
        assert row.get_by_text("connected", exact=True).count() == 1
        assert row.locator("time").get_attribute("datetime").startswith("20")
        row.get_by_role("button", name="disconnect").click()
        question.get_by_role("button", name="Disconnect").click()
        console.page.locator("#gone").get_by_text("grid 7").first.wait_for()


def test_a_slash_goes_to_the_filter_and_escape_closes_what_was_opened_last(console, server):
    _, pane = opened(console, server)
    console.page.keyboard.press("/")
    assert console.page.evaluate("() => document.activeElement.ariaLabel") == "Filter"
    console.page.keyboard.type("/id > 1")
    box = console.page.get_by_role("combobox", name="Filter")
    assert box.input_value() == "/id > 1"
    console.page.keyboard.press("Escape")
    console.until("() => document.activeElement.value === ''")
    pane.get_by_role("button", name="Edit").click()
    editor = pane.get_by_label("The record as JSON")
    editor.press("/")
    assert "/" in editor.input_value()
    editor.press("Escape")
    editor.wait_for(state="detached")
    console.page.get_by_text("Export", exact=True).first.click()
    console.page.keyboard.press("Escape")
    console.until("() => !document.querySelector('details.menu[open]')")
    assert pane.count() == 1
    console.page.keyboard.press("Escape")
    pane.wait_for(state="detached")


def test_the_pages_of_a_topic_are_tabs_that_keep_the_filter(console):
    console.open("topic", "orders", filter="/id > 1", order="/id")
    console.until_grid("2", "3")
    tabs = console.page.get_by_role("navigation", name="Pages of orders")
    for name, seen in (("Conflation", "#updates-in"), ("Plan", "#plan"), ("Definition", "dl")):
        tabs.get_by_role("link", name=name).click()
        console.page.locator(seen).wait_for()
        tab = tabs.get_by_role("link", name=name)
        assert tab.get_attribute("aria-current") == "page"
    assert "/symbol" in console.text("#definition")
    tabs.get_by_role("link", name="Records").click()
    console.until_grid("2", "3")


def test_topics_are_sorted_and_health_stands_first(console, server):
    console.open()
    console.page.locator("#health", has_text="takes messages").wait_for()
    console.page.get_by_role("columnheader", name="records").get_by_role("button").click()
    console.until("() => location.hash.includes('sort=-records')")
    heads = console.page.locator("#topics th[aria-sort]", has_text="records ▼")
    heads.wait_for()
    console.until(f"() => {NAMES}.slice(0, 2).sort().join() === 'orders,orders-C'")
    console.page.get_by_role("columnheader", name="topic", exact=True).get_by_role("button").click()
    console.until("() => location.hash.includes('sort=topic')")
    console.until(f"() => {NAMES}[0] === 'book'")


NAMES = "[...document.querySelectorAll('#topics tbody tr')].map((one) => one.cells[0].innerText)"


def test_lines_begin_with_what_the_server_has_kept(console, server):
    server.publish("orders", {"id": 2, "price": 5})
    console.open()
    console.until(
        """() => {
          const [row] = [...document.querySelectorAll("#topics tbody tr")]
            .filter((one) => one.cells[0].textContent.trim() === "orders");
          return (row?.querySelector("path")?.getAttribute("d") ?? "").split("L").length > 3;
        }"""
    )


def test_rates_are_there_before_the_second_answer(console, server):
    server.publish("orders", {"id": 2, "price": 5})
    console.page.add_init_script(ONCE)
    console.open()
    row = console.page.locator("#topics tbody tr").first
    row.locator("path").first.wait_for(state="attached")
    assert all(row.locator("td").nth(at).inner_text() for at in (5, 6))


ONCE = (
    "const wait = setTimeout; window.setTimeout = (work, ms) => (ms >= 1000 ? 0 : wait(work, ms));"
)
"""Nothing is asked for a second time."""
