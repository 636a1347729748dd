"""A page is opened where somebody could see it."""

import webbrowser

import pytest

from sow.cli.browser import has_display, open_page


@pytest.mark.parametrize(
    ("environment", "platform", "seen"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ""}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({}, "darwin", True),
    ],
)
def test_it_takes_a_display(environment, platform, seen):
    opened = []
    assert has_display(environment, platform) is seen
    assert open_page("http://x/", environment, platform, lambda u: not opened.append(u)) is seen
    assert opened == ["http://x/"] * seen


@pytest.mark.parametrize("error", [webbrowser.Error("none"), OSError("no such program")])
def test_a_browser_that_does_not_start_is_no_error(error):
    def broken(_url):
        raise error

    assert open_page("http://x/", {}, "darwin", broken) is False
