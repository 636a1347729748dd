"""Columns of the grid: pinned, as wide and as exact as somebody wants them, on this screen."""

import pytest

pytestmark = pytest.mark.browser

MANY = {"id": 7} | {f"field_{number}": f"a value of some length {number}" for number in range(20)}
HEADS = "[...document.querySelectorAll('regular-table thead th')].map((one) => one.textContent)"
WIDTH = """(name) => [...document.querySelectorAll("regular-table thead th")]
  .find((one) => one.textContent.startsWith(name))?.getBoundingClientRect().width"""


def opened(console):
    """The menu of the columns."""
    menu = console.page.locator("details.menu", has_text="Columns")
    menu.locator("summary").click()
    return menu


def begun(console, server):
    server.publish("orders", MANY)
    console.open("topic", "orders", filter="/id = 7")
    console.until_grid("7")


def test_a_pinned_column_stays_while_the_others_are_scrolled(console, server):
    begun(console, server)
    opened(console).get_by_label("Pin field_3").check()
    console.until_grid(MANY["field_3"])
    assert console.page.get_by_role("rowheader", name=MANY["field_3"]).count() == 1
    console.page.keyboard.press("Escape")
    for head in ("field_3", "field_3 ▲"):
        console.until(f"([head]) => {HEADS}[0] === head", head)
        console.page.locator("regular-table thead th").first.click()
    console.page.locator("regular-table").evaluate("(table) => { table.scrollLeft = 100_000; }")
    console.until(f"() => {HEADS}[0] === 'field_3 ▼' && !{HEADS}.includes('id')")
    console.until_grid(MANY["field_3"])
    # The address is that of the view; what is pinned is kept in this browser, for this topic.
    assert "pin" not in console.page.url
    console.page.reload()
    console.until_grid(MANY["field_3"])
    server.publish("desk/1", MANY)
    console.open("topic", "desk/1")
    console.until_grid("7")


def test_a_row_is_chosen_and_leaves_with_its_pinned_cells(console, server):
    console.open("topic", "orders", filter="/price > 1", order="/id")
    console.until_grid("1", "2", "3")
    opened(console).get_by_label("Pin symbol").check()
    console.until_grid("ACME", "BETA", "ACME")
    console.page.keyboard.press("Escape")
    console.page.get_by_role("rowheader", name="BETA").click()
    console.page.get_by_label("The record").get_by_text('"id": 2').wait_for()
    console.note("regular-table tr.gone th[title=match]")
    server.publish("orders", {"id": 2, "symbol": "BETA", "price": 0})
    console.until("() => window.noted.length > 0")
    console.until_grid("ACME", "ACME")


def test_numbers_are_rounded_to_the_digits_that_somebody_wants(console, server):
    server.publish("orders", {"id": 4, "symbol": "PI", "price": 3.14159})
    console.open("topic", "orders", order="/id", columns="/id,/price")
    console.until_grid("1", "2", "3", "4")
    menu = opened(console)
    assert menu.get_by_label("Digits of symbol").count() == 0
    menu.get_by_label("Digits of price").fill("2")
    console.page.keyboard.press("Enter")
    console.until("() => !document.querySelector('regular-table').textContent.includes('3.14159')")
    rounded = ["10.25", "99.50", "11.00", "3.14"]
    assert [row[1] for row in console.grid()] == rounded
    console.page.reload()
    console.until_grid("1", "2", "3", "4")
    assert [row[1] for row in console.grid()] == rounded
    opened(console).get_by_label("Digits of price").fill("")
    console.page.keyboard.press("Enter")
    console.until("() => document.querySelector('regular-table').textContent.includes('3.14159')")


def test_a_column_is_as_wide_as_it_was_made_with_keys_or_the_mouse(console, server):
    begun(console, server)
    menu = opened(console)
    menu.get_by_label("Width of field_2").fill("48")
    menu.get_by_label("Width of field_2").press("Enter")
    wide = f"([most]) => Math.abs(({WIDTH})('field_2') - most) < 2"
    console.until(wide, 48)
    console.page.keyboard.press("Escape")
    console.page.reload()
    console.until_grid("7")
    console.until(wide, 48)
    edge = console.page.locator("regular-table thead th", has_text="field_2").first
    box = edge.bounding_box()
    mouse, height = console.page.mouse, box["y"] + box["height"] / 2
    mouse.move(box["x"] + box["width"] - 3, height)
    mouse.down()
    mouse.move(box["x"] + box["width"] + 97, height, steps=5)
    mouse.up()
    console.until(f"() => ({WIDTH})('field_2') > 120")
    kept = '() => Object.values(localStorage).some((one) => /"width":1[0-9]{2}/.test(one))'
    console.until(kept)
    assert "order=" not in console.page.url  # dragging is no click on the head
    opened(console).get_by_label("Width of field_2").fill("")
    console.page.keyboard.press("Enter")
    console.until(f"() => ({WIDTH})('field_2') > 150")


def test_a_column_is_found_by_its_name_and_shown_or_not(console, server):
    begun(console, server)
    menu = opened(console)
    menu.get_by_label("Find a column").fill("LD_1")
    console.until("() => document.querySelectorAll('#columns tbody tr').length === 11")
    menu.get_by_label("field_12", exact=True).uncheck()
    console.until(f"() => !{HEADS}.includes('field_12')")
    menu.get_by_label("Find a column").fill("none such")
    menu.get_by_text("No column has that in its name.").wait_for()
    menu.get_by_role("button", name="Show all").click()
    console.until("() => !location.hash.includes('columns=')")


def test_what_others_keep_for_columns_does_not_matter(console, server):
    begun(console, server)
    for kept in ("{half", '[["/id", null]]', '[["/id", {"width": "1e9", "digits": -1}]]', "7"):
        console.page.evaluate("(kept) => localStorage.setItem('sow-columns / orders', kept)", kept)
        console.page.reload()
        console.until_grid("7")
