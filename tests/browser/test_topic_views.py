"""A topic as a map and as a ladder, for who would rather look than read."""

import pytest

from tests.edge.serving import records

pytestmark = pytest.mark.browser


def test_records_with_coordinates_are_shown_where_they_are(console, server):
    places = [(30.2, -97.7), (30.4, -97.8), (30.3, -97.6)]
    buses = [{"id": n, "latitude": lat, "longitude": lon} for n, (lat, lon) in enumerate(places)]
    server.publish("buses", *buses, {"id": "lost"})
    console.open("topic", "buses")
    console.page.get_by_role("button", name="Map").click()
    console.page.get_by_role("img", name="Where 3 records").wait_for()
    console.until(
        """() => {
          const map = document.querySelector("#map");
          const drawn = map.getContext("2d").getImageData(0, 0, map.width, map.height);
          return new Set(new Uint32Array(drawn.data.buffer)).size > 3;
        }"""
    )
    server.request("DELETE", records("buses", filter="/id = 0"))
    console.page.get_by_role("img", name="Where 2 records").wait_for()
    assert "as=map" in console.page.url


def test_a_book_is_shown_as_a_ladder(console, server):
    levels = [("bid", 9.5, 3), ("bid", 9.0, 2), ("ask", 10.25, 4), ("ask", 11, 1)]
    server.publish(
        "book",
        *({"symbol": "A", "side": side, "price": price, "qty": n} for side, price, n in levels),
        {"symbol": "B", "side": "bid", "price": 5, "qty": 1},
    )
    console.open("topic", "book")
    console.page.get_by_role("button", name="Ladder").click()
    console.page.locator("#ladder tbody tr").nth(4).wait_for()
    assert [[text.strip() for text in row] for row in console.cells("#ladder")] == [
        ["", "11", "1"],
        ["", "10.25", "4"],
        ["", "spread 0.75", ""],
        ["3", "9.5", ""],
        ["2", "9", ""],
    ]
    server.publish("book", {"symbol": "A", "side": "bid", "price": 10, "qty": 7})
    console.page.locator("#ladder .spread", has_text="0.25").wait_for()


def test_an_address_of_a_map_shows_it_to_whoever_gets_it(console, server):
    # Called otherwise than the first names that are looked for, and beside what is no place at all.
    server.publish(
        "buses",
        {"id": 1, "lat": 90, "lon": 0},
        {"id": 2, "lat": 47.4, "lon": 8.5},
        {"id": 3, "lat": 1e13, "lon": 8.5},
        {"id": 4, "lat": "47.4", "lon": None},
    )
    console.open("topic", "buses", **{"as": "map"})
    console.page.get_by_role("img", name="Where 2 records").wait_for()


def test_a_map_of_what_is_at_a_pole_has_an_end(console, server):
    server.publish("buses", {"id": 1, "lat": 90, "lon": 0}, {"id": 2, "lat": 90, "lon": 120})
    console.open("topic", "buses", **{"as": "map"})
    console.page.get_by_role("img", name="Where 2 records").wait_for()
    console.page.get_by_role("button", name="Table").click()
    console.until_grid("1", "2")


def test_a_ladder_takes_levels_that_are_none(console, server):
    server.publish(
        "book",
        {"symbol": "A", "side": "bid", "price": 10, "size": 5},
        {"symbol": "A", "side": "ask", "price": "soon", "size": "many"},
        {"symbol": "A", "side": "bid", "price": -1, "size": -3},
    )
    console.open("topic", "book", **{"as": "ladder"})
    console.page.locator("#ladder .bid").nth(1).wait_for()
    console.until("() => document.querySelector('#ladder').textContent.includes('5')")
    rows = [[text.strip() for text in row] for row in console.cells("#ladder")]
    assert [row[1] for row in rows] == ["soon", "", "10", "-1"]
    assert [rows[0][2], rows[2][0], rows[3][0]] == ["many", "5", "-3"]
