"""The same view in other languages: each text is run, and finds what the grid shows."""

import pytest

pytestmark = pytest.mark.browser


def test_the_same_view_is_said_in_other_languages(console, server):
    console.open("topic", "orders", filter="/symbol = 'ACME'", order="/id")
    console.page.get_by_text("Copy as").click()
    assert "curl -s '" in console.text("#snippet")
    languages = {"Python": "client.live(", "JavaScript": "/sow.js", "Spark": 'format("sow")'}
    for name, said in languages.items():
        console.page.get_by_role("button", name=name).click()
        assert said in console.text("#snippet")
        assert "/symbol = 'ACME'" in console.text("#snippet")
