"""Records, names and users that nobody has foreseen: very wide, very long, very deep, odd, far
away, and a server that is started again while somebody looks."""

from dataclasses import replace

import pytest

from tests.browser.looking import TOPICS, looked
from tests.browser.test_console_rules import OUTSIDE
from tests.edge.serving import Running, configuration

pytestmark = pytest.mark.browser

NARROW = {"width": 360, "height": 700}
LONG = 500_000


def test_of_very_many_fields_some_are_columns_and_any_is_found(console, server):
    server.publish("orders", {"id": 7} | {f"field_{number}": number for number in range(10_000)})
    console.open("topic", "orders", filter="/id = 7")
    console.until_grid("7")
    menu = console.page.locator("details.menu", has_text="Columns")
    menu.locator("summary").click()
    assert menu.locator("tbody tr").count() == 60
    menu.get_by_text("Records have more fields").wait_for()
    menu.get_by_label("Find a column").fill("/field_9999")
    menu.get_by_role("button", name="Show /field_9999").click()
    console.page.locator("regular-table").evaluate("(table) => { table.scrollLeft = 100_000; }")
    console.page.locator("regular-table thead th", has_text="field_9999").wait_for()
    menu.get_by_label("Find a column").fill("field_9999")
    assert menu.get_by_role("checkbox", name="field_9999", exact=True).is_checked()


def test_a_text_of_a_megabyte_is_cut_in_a_cell_and_whole_in_its_record(console, server):
    long = {"symbol": "x" * LONG, "list": ["y" * LONG], "note": "z" * 2000}
    server.publish("orders", {"id": 7, **long})
    console.open("topic", "orders", filter="/id = 7", columns="/id,/symbol,/list")
    console.until_grid("7")
    assert [len(text) for text in console.grid()[0]] == [1, 301, 301]
    # What no address can hold is no term.
    console.page.locator(".facets button:disabled", has_text="zzz").wait_for()
    console.page.locator("regular-table tbody td").first.click()
    console.until(f"() => document.querySelector('pre.document').textContent.length > {2 * LONG}")
    assert console.page.evaluate(OUTSIDE)["scrolls"] is False


def test_numbers_of_any_size_stand_at_the_right_and_are_counted_exactly(console, server):
    large = [9007199254740993, 9007199254740995, 9223372036854775807, -5, 0.5]
    nul = {"symbol": "\x009007199254740993", "day": "2026-02-30", "nan": "NaN"}
    server.publish("orders", *({"id": n, "n": one, **nul} for n, one in enumerate(large, 10)))
    console.open("topic", "orders", filter="/id >= 10", order="/id", columns="/id,/n,/day,/nan")
    console.until_grid("10", "11", "12", "13", "14")
    assert [row[1].rstrip("\u2007") for row in console.grid()] == [*map(str, large)]
    assert console.grid()[0][2:] == ["2026-02-30", "NaN"]
    cells = "regular-table tbody tr td:nth-child(2)"
    kinds = console.page.locator(cells).evaluate_all("(all) => all.map((one) => one.className)")
    assert all("numeric" in kind for kind in kinds)
    bars = console.page.get_by_role("group", name=f"/n from -5 to {large[2]}").get_by_role("button")
    bars.first.wait_for()
    counts = [int(one.get_attribute("aria-label").split()[0]) for one in bars.all()]
    assert (sum(counts), counts[-1]) == (5, 1)
    # Who saves what he has not changed changes nothing.
    console.page.locator("regular-table tbody td").first.click()
    pane = console.page.get_by_label("The record")
    pane.get_by_role("button", name="Edit").click()
    pane.get_by_role("button", name="Save").click()
    pane.get_by_role("button", name="Edit").wait_for()
    assert server.records("orders", filter="/id = 10") == [{"id": 10, "n": large[0], **nul}]


def test_what_is_nested_deeply_is_shown(console, server):
    deep = {"end": 1}
    for _ in range(100):
        deep = {"a": deep}
    server.publish("orders", {"id": 7, "deep": deep})
    console.open("topic", "orders", filter="/id = 7")
    console.until_grid("7")
    assert console.grid()[0][1] == "1"
    console.page.locator("regular-table tbody td").first.click()
    console.page.get_by_label("The record").get_by_text('"end": 1').wait_for()


ODD = ("50% & a+b=c?d#e", 'it\'s "a/b"', "שלום 1 – 2", "日本 <b>", ";..;", "x" * 200)


def test_a_topic_of_any_name_has_all_its_pages(browser, server):
    for name in ODD:
        server.publish(f"desk/{name}", {"id": name, "n": 1})
    with looked(browser, server.url + "/", viewport=NARROW) as console:
        console.open()
        console.page.get_by_role("button", name="Topics of desks").click()
        for name in ODD:
            full = f"desk/{name}"
            console.page.get_by_role("link", name=full, exact=True).click()
            console.until_grid(name)
            assert console.text("h1") == full
            assert console.page.evaluate(OUTSIDE)["scrolls"] is False, name
            console.page.get_by_label(f"Pages of {full}").get_by_role("link", name="Plan").click()
            console.page.locator("#rows-touched").wait_for()
            console.page.get_by_role("link", name="Definition").click()
            console.page.locator("#definition dd", has_text="desks").wait_for()
            console.page.get_by_role("link", name="Topics", exact=True).click()


def test_a_moment_is_that_of_the_users_clock_wherever_that_is(browser, server):
    server.publish("orders", {"id": 4})
    zone = {"timezone_id": "Pacific/Chatham"}
    with looked(browser, server.url + "/", **zone) as console:
        console.open("topic", "orders", as_of="2026-01-01T00:00:00Z")
        box = console.page.get_by_label("Moment")
        console.until("() => !document.querySelector('[aria-label=Moment]').disabled")
        assert box.input_value().startswith("2026-01-01T13:45")
        assert console.text(".travel output") == "2026-01-01 13:45:00"
        box.fill("2026-07-01T00:00:00")
        console.until("() => decodeURIComponent(location.hash).includes('2026-06-30T11:15:00')")


def test_a_server_that_is_started_again_is_gone_on_with(browser, tmp_path):
    running = Running(configuration(TOPICS), tmp_path / "data")
    try:
        running.publish("orders", {"id": 1})
        with looked(browser, running.url + "/") as console:
            console.open("topic", "orders", order="/id", filter="/id > 0")
            console.until_grid("1")
            running._config = replace(running._config, port=running.address[1])
            running.stop()
            console.page.locator(".state", has_text="connecting again").wait_for()
            running.start()
            running.publish("orders", {"id": 2})
            console.until_grid("1", "2")
            console.until("() => document.querySelector('#matches').textContent === '2 match'")
            console.page.locator(".problem").wait_for(state="detached")
            # The browser says that nobody answered.
            console.errors.clear()
    finally:
        running.close()
