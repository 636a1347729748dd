"""The text for Spark that the console has of a view is run as it stands, and finds its records."""

import pytest

from tests.browser.looking import looked

pytestmark = [pytest.mark.spark, pytest.mark.edge, pytest.mark.browser]


def test_the_text_for_spark_finds_what_the_grid_shows(spark, server, browser, capsys):
    server.publish("orders", *({"id": number, "symbol": "O'Neil"} for number in (1, 2, 3)))
    with looked(browser, server.url + "/") as console:
        console.open("topic", "orders", filter=r"/symbol = 'O\'Neil' AND /id > 1")
        console.until_grid("2", "3")
        text = console.copied()["Spark"]
    found = {}
    exec(compile(text, "copied", "exec"), found)
    assert sorted(row.id for row in found["records"].collect()) == [2, 3]
    assert "O'Neil" in capsys.readouterr().out
