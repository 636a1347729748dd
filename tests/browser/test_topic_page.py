"""The page of one topic: its records as they change, the filter box, and the address that holds
all of it."""

import re

import pytest

from tests.edge.serving import records

pytestmark = pytest.mark.browser


def test_the_records_of_a_topic_stay_current(console, server):
    console.open("topic", "orders", order="/id")
    console.until_grid("1", "2", "3")
    assert [row[:2] for row in console.grid()] == [["1", "ACME"], ["2", "BETA"], ["3", "ACME"]]
    server.publish("orders", {"id": 2, "symbol": "GAMMA", "price": 1})
    console.until("() => document.body.textContent.includes('GAMMA')")
    server.publish("orders", {"id": 0, "symbol": "NEW", "price": 1})
    console.until_grid("0", "1", "2", "3")
    assert console.text("#matches") in ("3 match", "4 match")
    console.page.get_by_role("button", name="Table").wait_for(state="detached")


@pytest.mark.parametrize("gone", ["match", "deleted"])
def test_a_row_leaves_with_its_reason(console, server, gone):
    console.open("topic", "orders", filter="/price > 1", order="/id")
    console.until_grid("1", "2", "3")
    console.note("regular-table tr.gone td")
    if gone == "match":
        server.publish("orders", {"id": 2, "price": 0})
    else:
        server.request("DELETE", records("orders", filter="/id = 2"))
    console.until("([gone]) => window.noted.includes(gone)", gone)
    console.until_grid("1", "3")
    console.page.locator("#left", has_text=gone).wait_for()
    console.page.locator("regular-table tr.gone").wait_for(state="detached")


def test_a_cell_that_changes_is_lit_up_for_a_moment(console, server):
    console.open("topic", "orders", order="/id")
    console.until_grid("1", "2", "3")
    console.note("regular-table td.hot, regular-table td.warm")
    server.publish("orders", {"id": 2, "symbol": "BETA", "price": 7})
    console.until("() => window.noted.length > 0")
    console.until("() => !document.querySelector('regular-table td.hot, regular-table td.warm')")


def test_what_is_wrong_in_a_filter_is_underlined_where_it_stands(console):
    console.open("topic", "orders")
    box = console.page.get_by_role("combobox", name="Filter")
    box.fill("/price > 1 AND AND /id = 1")
    box.press("Enter")
    wrong = console.page.locator(".echo .wrong")
    wrong.wait_for(state="attached")
    assert wrong.inner_text() == "AND"
    before = console.page.evaluate("() => document.querySelector('.wrong').previousSibling.data")
    assert before == "/price > 1 AND "
    assert box.get_attribute("aria-invalid") == "true"
    assert "position 15" in console.text("#filter-error")
    box.fill("/price > 11")
    box.press("Enter")
    console.until_grid("2")
    assert "filter=%2Fprice+%3E+11" in console.page.url


def test_fields_and_functions_are_offered_while_one_types(console):
    console.open("topic", "orders", order="/id")
    console.until_grid("1", "2", "3")
    box = console.page.get_by_role("combobox", name="Filter")
    box.press_sequentially("/pr")
    console.page.get_by_role("option", name="/price").wait_for()
    box.press("Tab")
    assert box.input_value() == "/price"
    box.fill("")
    box.press_sequentially("conca")
    console.page.get_by_role("option").first.wait_for()
    box.press("Tab")
    assert box.input_value() == "CONCAT("


def test_what_is_offered_is_chosen_with_the_keys_alone(console):
    console.open("topic", "orders", order="/id")
    console.until_grid("1", "2", "3")
    box = console.page.get_by_role("combobox", name="Filter")
    box.press_sequentially("/price > 1 AND /")
    marked = console.page.get_by_role("option", selected=True)
    assert marked.inner_text().split()[0] == "/id"
    box.press("ArrowDown")
    console.page.get_by_role("option", name="/symbol", selected=True).wait_for()
    assert box.get_attribute("aria-activedescendant") == marked.get_attribute("id")
    box.press("ArrowUp")
    box.press("ArrowUp")
    console.page.get_by_role("option", name="/price", selected=True).wait_for()
    box.press("Escape")
    console.page.get_by_role("option").first.wait_for(state="detached")
    assert box.get_attribute("aria-expanded") == "false"
    box.press_sequentially("s")
    console.page.get_by_role("option", name="/symbol", selected=True).wait_for()
    box.press("Tab")
    box.press_sequentially(" = 'BETA'")
    box.press("Enter")
    console.until_grid("2")


def test_what_is_scrolled_out_of_view_has_not_left(console, server):
    server.publish("orders", *({"id": number, "price": number} for number in range(1500)))
    console.open("topic", "orders", order="/id")
    console.until("() => document.querySelector('#matches')?.textContent.startsWith('1,500')")
    for row in (40, 60, 500):
        console.page.locator("regular-table").evaluate(
            "(table, row) => { table.scrollTop = row * 22; }", row
        )
        console.until(
            """([row]) => {
              const rows = [...document.querySelectorAll("regular-table tbody tr")];
              return Math.abs(Number(rows[0].cells[0].textContent) - row) <= 1;
            }""",
            row,
        )
        assert console.page.locator("regular-table tr.gone").count() == 0
    assert console.text("#left") == ""


def test_records_are_gone_through_with_the_keys_alone(console, server):
    server.publish("orders", *({"id": number, "price": number} for number in range(1500)))
    console.open("topic", "orders", order="/id")
    console.until("() => document.querySelector('#matches')?.textContent.startsWith('1,500')")
    grid = console.page.get_by_role("grid", name="Records of orders")
    assert grid.get_attribute("aria-rowcount") == "1501"
    grid.focus()
    record = console.page.get_by_label("The record").locator("pre")
    grid.press("ArrowDown")
    record.get_by_text('"id": 0,').wait_for()
    grid.evaluate(HELD, ["ArrowDown", 59])
    record.get_by_text('"id": 59,').wait_for()
    chosen = console.page.get_by_role("row", selected=True)
    console.until("() => document.querySelector('tr.chosen')?.ariaRowIndex === '61'")
    assert grid.get_attribute("aria-activedescendant") == chosen.get_attribute("id")
    # It is in view, below the heads of the columns.
    console.until(
        """() => {
          const {top, bottom} = document.querySelector("tr.chosen").getBoundingClientRect();
          const place = document.querySelector("regular-table").getBoundingClientRect();
          return top > place.top && bottom <= place.bottom;
        }"""
    )
    grid.evaluate(HELD, ["ArrowUp", 59])
    record.get_by_text('"id": 0,').wait_for()
    console.until("() => document.querySelector('tr.chosen')?.rowIndex === 1")
    for key, number in (("End", 1499), ("Home", 0)):
        grid.press(key)
        record.get_by_text(f'"id": {number},').wait_for()
    grid.press("PageDown")
    console.until("() => document.querySelector('tr.chosen')?.ariaRowIndex > 12")
    grid.press("PageUp")
    record.get_by_text('"id": 0,').wait_for()
    grid.press("Escape")
    record.wait_for(state="detached")


HELD = """(grid, [key, times]) => {
  for (let time = 0; time < times; time += 1) {
    grid.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
  }
}"""
"""A key that is held down, faster than anybody can."""
SPOKEN = """() => {
  window.spoken = [];
  const live = "[role=status], [role=alert], [aria-live]";
  new MutationObserver((changes) => {
    for (const {target} of changes) {
      const place = (target.nodeType === 1 ? target : target.parentElement)?.closest(live);
      if (place) window.spoken.push(place.textContent);
    }
  }).observe(document.body, {subtree: true, childList: true, characterData: true});
}"""


def test_who_hears_the_page_is_not_sent_of_every_record_that_leaves(console, server):
    rows = [{"id": number, "price": number} for number in range(40)]
    server.publish("orders", *rows)
    console.open("topic", "orders", filter="/price > 0", order="/id")
    console.until("() => document.querySelector('#matches')?.textContent.startsWith('39')")
    console.page.evaluate(SPOKEN)
    for row in rows[1:]:
        server.publish("orders", row | {"price": 0})
    console.page.get_by_text("No record matches.").wait_for()
    console.until("() => window.spoken.length > 0")
    spoken = set(console.page.evaluate("() => window.spoken")) - {""}
    assert all(text.endswith("left, the last one: match") for text in spoken)
    assert len(spoken) < len(rows) / 4, "once in ten seconds, however long this takes"


def test_the_address_holds_the_view(console):
    console.open("topic", "orders")
    console.until("() => document.querySelectorAll('regular-table tbody tr').length === 3")
    console.page.locator("regular-table thead th", has_text="price").click()
    console.page.locator("regular-table thead th", has_text="price ▲").click()
    console.until_grid("2", "3", "1")
    console.page.locator("regular-table tbody td", has_text="BETA").click()
    console.page.get_by_label("The record").get_by_text('"symbol": "BETA"').wait_for()
    console.page.reload()
    console.until_grid("2", "3", "1")
    console.page.get_by_label("The record").get_by_text('"symbol": "BETA"').wait_for()


def test_fields_are_shown_whatever_they_are_called(console, server):
    server.publish("orders", {"id": 4, "a/b": "slashed", "odd name": "spaced", "c,d": "parted"})
    console.open("topic", "orders", filter="/id = 4", columns="/id,$['a/b'],[/odd name],[/c,d]")
    console.until_grid("4")
    assert console.grid() == [["4", "slashed", "spaced", "parted"]]
    console.open("topic", "orders", filter="/id = 4")
    console.until("() => document.body.textContent.includes('parted')")
    console.page.locator("regular-table thead th", has_text="odd name").click()
    console.page.locator("regular-table thead th", has_text="odd name ▲").wait_for()
    console.until_grid("4")
    box = console.page.get_by_role("combobox", name="Order")
    assert box.input_value() == "[/odd name]"


def test_a_field_with_a_slash_in_its_name_is_found_ordered_and_offered(console, server):
    both, requested = """it's "a/b\\""", r"""$['it\'s "a/b\\']"""
    odd = {"id": 4, "a/b": "slashed", "x]y": {"it's, so": "bracketed"}, both: "quoted"}
    server.publish("orders", odd, {"id": 5, "a/b": "other"})
    path, within = "$['a/b']", """$['x]y']["it's, so"]"""
    columns = f"/id,{path},{within},{requested}"
    console.open("topic", "orders", filter=f"{path} = 'slashed'", columns=columns)
    console.until_grid("4")
    assert console.grid() == [["4", "slashed", "bracketed", "quoted"]]
    console.page.locator("regular-table thead th", has_text=re.compile("^a/b")).click()
    console.page.locator("regular-table thead th", has_text="a/b ▲").wait_for()
    console.until_grid("4")
    assert console.page.get_by_role("combobox", name="Order").input_value() == path
    box = console.page.get_by_role("combobox", name="Filter")
    box.fill("")
    box.type("/a/")
    console.page.get_by_role("option", name=path).wait_for()
    box.press("Tab")
    assert box.input_value() == path


def test_each_page_of_a_topic_that_is_not_there_says_so_and_what_may_be_meant(console):
    for page in ("topic", "slider", "explain", "definition"):
        console.open("topics")
        console.page.get_by_label("Find a topic").wait_for()
        console.open(page, "order")
        console.page.locator(
            "#absent", has_text="no topic 'order'; did you mean orders?"
        ).wait_for()
        console.until("() => !document.querySelector('.problem, main input')")
    console.expected = "404"


def test_a_topic_that_is_removed_and_comes_back_is_followed_again(console, server):
    whole = server.path.read_text()
    begin = whole.index("<ConflatedTopic>")
    end = whole.index("</ConflatedTopic>") + len("</ConflatedTopic>")
    console.open("topic", "orders-C", order="/id")
    console.until_grid("1", "2", "3")
    try:
        server.path.write_text(whole[:begin] + whole[end:])
        server.request("POST", "/v1/config/reload")
        console.page.locator("#absent").wait_for()
    finally:
        server.path.write_text(whole)
        server.request("POST", "/v1/config/reload")
    server.publish("orders", {"id": 4})
    console.until_grid("1", "2", "3", "4")
    console.page.locator("#absent").wait_for(state="detached")
    # The browser says so of the topic that was not there, too.
    console.expected = "404"


def test_only_what_is_in_view_is_followed_however_many_records_there_are(console, server):
    server.publish("orders", *({"id": number, "price": number} for number in range(1500)))
    console.open("topic", "orders", order="/id")
    console.until("() => document.querySelector('#matches')?.textContent.startsWith('1,500')")
    console.page.locator("regular-table").evaluate("(table) => { table.scrollTop = 1000 * 22 }")
    console.until(
        """() => [...document.querySelectorAll("regular-table tbody tr")]
          .some((row) => row.cells[0]?.textContent.trim() === "1005")"""
    )
    (session,) = [one for one in server.get("/v1/sessions").json if one["connected"]]
    (followed,) = server.get(f"/v1/sessions/{session['id']}").json["following"]
    assert followed["window"] is True
    assert console.page.locator("regular-table tbody tr").count() < 100


def test_it_is_said_why_a_record_of_a_conflated_topic_is_as_it_is(console, server):
    with server.socket() as ws:
        ws.ask({"c": "logon", "client": "desk"})
        ws.ask({"c": "subscribe", "t": "orders-C", "opts": "conflation=2h"})
        server.publish("orders", *({"id": 2, "price": price} for price in (1, 2, 3)))
        console.open("topic", "orders-C", order="/id")
        console.until_grid("1", "2", "3")
        console.page.locator("regular-table tbody tr").nth(1).locator("td").first.click()
        why = console.page.get_by_label("The record").locator("ul.why li")
        why.filter(has_text="updates as one").wait_for()
        assert "which came in the window from" in why.filter(has_text="updates as one").inner_text()
        why.filter(has_text="desk (once in 2.0 h at most)").wait_for()


def test_it_is_said_what_had_been_told_of_a_record_then(console, server):
    bookmark = server.publish("orders", {"id": 2, "price": 1}).json["bookmark"]
    server.publish("orders", {"id": 2, "price": 2})
    key = next(one["k"] for one in server.records("orders", meta="true") if one["d"]["id"] == 2)
    console.open("topic", "orders", key=key, as_of=bookmark)
    why = console.page.get_by_label("The record").locator("ul.why li")
    why.filter(has_text=f"the last line was update {bookmark}, at ").wait_for()
    console.open("topic", "orders", key=key, as_of=bookmark, user="ann")
    console.page.get_by_role("heading", name=f"Why, as of {bookmark} for ann").wait_for()


def test_records_that_are_text_or_bytes_are_there_to_be_seen(console, server):
    server.post("notes", b"<note><id>1</id><text>hello</text></note>", "text/plain")
    console.open("topic", "notes")
    console.until_grid("<note><id>1</id><text>hello</text></note>")
    console.page.locator("regular-table tbody td").first.click()
    record = console.page.get_by_role("complementary", name="The record")
    record.get_by_text('"text": "hello"').wait_for()
    server.post("packed", b"\x81\xa2id\x05", "application/octet-stream")
    console.open("topic", "packed")
    console.until_grid("gaJpZAU=")
    console.page.locator("regular-table tbody td").first.click()
    record.get_by_text('"id": 5').wait_for()


def test_a_field_is_never_what_this_language_has_of_that_name(console, server):
    server.publish("orders", {"id": 1, "constructor": "ACME", "__proto__": {"x": 2}}, {"id": 2})
    columns = "/id,/constructor,/__proto__/x,/toString"
    console.open("topic", "orders", columns=columns, filter="/id < 3")
    console.until_grid("1", "2")
    console.until("() => document.body.textContent.includes('ACME')")
    assert console.grid()[:2] == [["1", "ACME", "2", ""], ["2", "", "", ""]]


def test_an_address_follows_however_long_a_key_is_held(console, server):
    # Chromium takes no more than 200 addresses in ten seconds.
    server.publish("orders", *({"id": number} for number in range(400)))
    console.open("topic", "orders", order="/id")
    console.page.get_by_role("row").nth(5).wait_for()
    grid = console.page.get_by_role("grid")
    for _ in range(6):
        grid.evaluate(HELD, ["ArrowDown", 30])
        grid.evaluate(HELD, ["ArrowUp", 30])
    grid.press("Escape")
    grid.press("ArrowDown")
    record = console.page.get_by_role("complementary", name="The record")
    record.wait_for()
    key = record.locator(".code").first.inner_text()
    console.until("([key]) => location.hash.includes(encodeURIComponent(key))", key)
    # Whoever goes on is not called back, and comes back to where he was.
    console.page.get_by_role("link", name="Sessions").click()
    console.page.get_by_role("heading", name="Sessions").wait_for()
    console.page.go_back()
    record.wait_for()
    assert record.locator(".code").first.inner_text() == key


def test_an_integer_is_shown_with_all_its_digits(console, server):
    server.publish("orders", {"id": 4, "trade": 9007199254740993, "of": {"n": [9007199254740995]}})
    console.open("topic", "orders", filter="/id = 4", columns="/trade,/of/n")
    console.until_grid("9007199254740993")
    assert console.grid() == [["9007199254740993", "[9007199254740995]"]]
    console.page.locator("regular-table tbody td").first.click()
    console.page.get_by_label("The record").get_by_text('"trade": 9007199254740993').wait_for()


WITHOUT_TIME = """
const [wait, Socket] = [window.setTimeout, window.WebSocket];
window.setTimeout = (work, ms) => (ms >= 2000 ? 0 : wait(work, ms));
window.sockets = [];
window.WebSocket = class extends Socket {
  constructor(url) {
    super(url);
    window.sockets.push(this);
  }
};
"""
"""Nothing is asked for a second time because time has passed; and the sockets of the page."""


def test_who_comes_back_to_a_server_counts_at_once(console, server):
    console.page.add_init_script(WITHOUT_TIME)
    console.open("topic", "orders")
    console.until("() => document.querySelector('#matches')?.textContent === '3 match'")
    console.until_grid("1", "2", "3")
    server.publish("orders", {"id": 4})
    console.until_grid("1", "2", "3", "4")
    console.page.evaluate("() => window.sockets.at(-1).close()")
    console.until("() => document.querySelector('#matches').textContent === '4 match'")


def test_a_wait_for_a_server_that_was_away_is_not_taken_for_its_work(console):
    console.open("config")
    waited = console.page.evaluate(
        """async () => {
          const {html, render, useEvery} = await import(
            new URL("parts.js", document.querySelector("script[type=module]").src));
          const wait = window.setTimeout;
          let now = 0;
          return new Promise((done) => {
            performance.now = () => now;
            window.setTimeout = (work, ms) => (ms > 9999 ? done(ms) : wait(work, ms));
            const Asks = () => useEvery(1000, async () => (now += 3_600_000), []);
            render(html`<${Asks} />`, document.createElement("div"));
          });
        }"""
    )
    assert waited == 30_000
