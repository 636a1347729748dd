"""What is there: facets, groups, the past, and values that read alike."""

import pytest

from tests.edge.serving import records

pytestmark = pytest.mark.browser


def facets(console):
    return console.page.get_by_label("Facets")


def test_facets_count_the_values_of_the_filter_in_force_and_a_click_adds_a_term(console, server):
    server.publish("orders", *({"id": 10 + n, "symbol": "GAMMA", "price": 5} for n in range(4)))
    console.open("topic", "orders", order="/id")
    facets(console).get_by_role("button", name="GAMMA 4").wait_for()
    facets(console).get_by_role("button", name="ACME 2").wait_for()
    facets(console).get_by_role("button", name="BETA 1").click()
    console.until_grid("2")
    box = console.page.get_by_role("combobox", name="Filter")
    assert box.input_value() == "/symbol = 'BETA'"
    facets(console).get_by_role("button", name="GAMMA").wait_for(state="detached")
    box.fill("/id = 1 OR /id = 3")
    box.press("Enter")
    facets(console).get_by_role("button", name="ACME 2").click()
    console.until("() => location.hash.includes('OR')")
    console.until_grid("1", "3")
    assert box.input_value() == "(/id = 1 OR /id = 3) AND /symbol = 'ACME'"


def test_a_number_has_a_chart_of_its_range_and_a_bar_is_a_term(console, server):
    server.request("DELETE", records("orders", filter="1=1"))
    server.publish("orders", *({"id": n, "price": n} for n in range(121)))
    console.open("topic", "orders", order="/id")
    bars = facets(console).get_by_role("group", name="/price from 0 to 120").get_by_role("button")
    bars.first.wait_for()
    counts = [text.split()[0] for text in map(label, bars.all())]
    assert (len(counts), sum(map(int, counts))) == (12, 121)
    bars.last.click()
    console.until_grid(*map(str, range(110, 121)))
    box = console.page.get_by_role("combobox", name="Filter")
    assert box.input_value() == "/price >= 110 AND /price <= 120"


def test_the_updates_of_the_topic_stand_beside_its_records_from_the_first_second(console, server):
    server.publish("orders", {"id": 2, "price": 5})
    console.open("topic", "orders", order="/id")
    facets(console).locator("#topic-rates", has_text=" a second at most").wait_for()
    lines = facets(console).locator(".spark path")
    assert len(lines.first.get_attribute("d").split("L")) > 3


def label(bar):
    return bar.get_attribute("aria-label")


def test_very_many_records_are_counted_for_who_asks(console, server):
    console.page.route("**/console/facets.js", few_at_once)
    console.open("topic", "orders", order="/id")
    count = facets(console).get_by_role("button", name="Count 3 records")
    count.wait_for()
    assert facets(console).locator("details").count() == 0
    count.click()
    facets(console).get_by_role("button", name="ACME 2").wait_for()


async def few_at_once(route):
    answer = await route.fetch()
    text = (await answer.text()).replace("RECORDS_AT_ONCE = 100_000", "RECORDS_AT_ONCE = 2")
    assert "RECORDS_AT_ONCE = 2;" in text
    await route.fulfill(response=answer, body=text)


def test_a_pivot_is_live_and_is_made_a_view(console, server):
    console.open("topic", "orders")
    console.page.get_by_role("button", name="Pivot").click()
    box = console.page.get_by_role("combobox", name="Grouping")
    box.fill("/symbol")
    box.press("Enter")
    console.until_grid("ACME", "BETA")
    assert console.grid() == [["ACME", "2"], ["BETA", "1"]]
    box = console.page.get_by_role("combobox", name="Projection")
    box.fill("/symbol, MAX(/price) AS /most, CONCAT(MIN(/price), ',', 'x') AS /text")
    box.press("Enter")
    console.page.locator("regular-table thead th", has_text="most").wait_for()
    server.publish("orders", {"id": 4, "symbol": "BETA", "price": 777})
    console.until("() => document.querySelector('regular-table').textContent.includes('777')")
    console.page.get_by_role("button", name="Make this a View").click()
    text = console.text("#view-xml")
    assert "<Field>CONCAT(MIN(/price), ',', 'x') AS /text</Field>" in text
    assert "<Grouping><Field>/symbol</Field></Grouping>" in text
    whole = server.path.read_text()
    try:
        server.path.write_text(whole.replace("</SOW>", text + "</SOW>"))
        assert "orders-by-symbol" in str(server.request("POST", "/v1/config/reload").json)
        made = server.records("orders-by-symbol", order_by="/symbol")
        assert [row["most"] for row in made] == [11, 777]
    finally:
        server.path.write_text(whole)
        server.request("POST", "/v1/config/reload?allow_loss=true")
    console.page.get_by_role("button", name="Close pivot").click()
    console.until("() => document.querySelectorAll('regular-table tbody tr').length === 4")


def test_a_pivot_that_is_wrong_says_so_and_keeps_the_groups(console):
    console.open("topic", "orders", group="/symbol")
    console.until_grid("ACME", "BETA")
    box = console.page.get_by_role("combobox", name="Projection")
    box.fill("/symbol, NONE(/price) AS /n")
    box.press("Enter")
    console.page.locator("#pivot-error", has_text="NONE").wait_for()
    console.until_grid("ACME", "BETA")


def test_the_past_is_a_slider_and_an_address(console, server):
    before = server.publish("orders", {"id": 4}).json["bookmark"]
    server.publish("orders", {"id": 5}, {"id": 4, "symbol": "LATER"})
    console.open("topic", "orders", order="/id", as_of=before)
    console.until_grid("1", "2", "3", "4")
    assert "LATER" not in console.text("regular-table")
    console.page.get_by_role("button", name="Now").click()
    console.until_grid("1", "2", "3", "4", "5")
    slider = console.page.get_by_role("slider", name="As of")
    slider.evaluate(
        "(box) => { box.value = 0; box.dispatchEvent(new Event('change', {bubbles: true})); }"
    )
    console.until("() => location.hash.includes('as_of=')")
    console.page.get_by_text("There were no records then.").wait_for()
    console.page.get_by_label("Moment").fill("2000-01-01T09:30:00")
    console.until(
        "() => /as_of=(1999-12-31|2000-01-0[12])T/.test(decodeURIComponent(location.hash))"
    )
    slider.press("End")
    console.until_grid("1", "2", "3", "4", "5")
    assert "as_of" not in console.page.url
    assert console.page.get_by_label("Moment").input_value() == ""


def test_what_reads_alike_is_seen_apart(console, server):
    values = [None, "", "null", '""', "a\nb", "x\u202ey\u200b"]
    server.publish("orders", *({"id": 10 + n, "symbol": one} for n, one in enumerate(values)))
    server.publish("orders", {"id": 20})
    console.open("topic", "orders", filter="/id >= 10", order="/id", columns="/id,/symbol")
    console.until_grid("10", "11", "12", "13", "14", "15", "20")
    shown = ["null", '""', "null", '""', r"a\nb", r"x\u202ey\u200b", ""]
    assert [row[1] for row in console.grid()] == shown
    marked = "regular-table td.special"
    assert console.page.locator(marked).all_inner_texts() == ["null", '""']


def test_a_filter_that_is_wrong_leaves_the_rows_there_and_live(console, server):
    console.open("topic", "orders", order="/id")
    console.until_grid("1", "2", "3")
    box = console.page.get_by_role("combobox", name="Filter")
    box.fill("/price >")
    box.press("Enter")
    console.page.locator("#filter-error").wait_for()
    console.until_grid("1", "2", "3")
    server.publish("orders", {"id": 4})
    console.until("() => document.querySelector('regular-table').textContent.includes('4')")
    box.fill("/id = 2")
    box.press("Enter")
    console.until_grid("2")


def test_a_field_that_no_record_has_is_named_with_the_one_that_may_be_meant(console):
    console.open("topic", "orders", filter="/symbl = 'ACME'")
    console.page.locator(
        "#advice", has_text="no record has /symbl; did you mean /symbol?"
    ).wait_for()
    console.page.get_by_text("No record matches.").wait_for()
    console.page.get_by_role("button", name="Clear the filter").click()
    console.until_grid("1", "2", "3")
    box = console.page.get_by_role("combobox", name="Filter")
    box.fill("/symbol = 'ACME'")
    box.press("Enter")
    console.page.locator("#advice").wait_for(state="detached")
    console.until_grid("1", "3")
