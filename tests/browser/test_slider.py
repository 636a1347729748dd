"""The slider: what an interval saves."""

import pytest

from tests.browser.looking import publishing

pytestmark = pytest.mark.browser


def test_the_slider_changes_how_much_is_sent(console, server):
    console.open("slider", "orders", interval="10s", filter="/id = 1")
    number = "Number(document.querySelector('{}').textContent.replaceAll(',', ''))"
    taken, given = number.format("#updates-in"), number.format("#updates-out")
    with publishing(server, 20):
        console.until(f"() => {taken} > 2 && {given} < {taken} / 2")
        console.page.get_by_role("button", name="none").click()
        console.until(f"() => {given} > 2 && {given} > {taken} / 2")
        assert "interval=none" in console.page.url
        console.page.get_by_role("slider").press("End")
        console.until(f"() => {given} < {taken} / 2")


def test_without_a_topic_the_slider_shows_the_busiest(console, server):
    server.publish("desk/1", {"id": 1})
    console.open("slider")
    console.until("() => location.hash === '#/slider/orders'")
    console.page.get_by_role("slider").wait_for()
    console.page.get_by_role("link", name="Records").click()
    console.page.get_by_role("heading", name="orders").wait_for()
    console.page.get_by_role("link", name="Plan").click()
    console.until("() => location.hash === '#/explain/orders'")
    console.open("explain")
    console.until("() => location.hash === '#/explain/orders'")
