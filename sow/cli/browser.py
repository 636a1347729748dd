"""Opens a page in the browser of the user at this machine, if there is a display.

Without a display Python would start a text browser on top of the terminal's output.
"""

import sys
import webbrowser
from collections.abc import Callable, Mapping

DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
"""Variables that name the display of X11 or Wayland."""
WITH_DISPLAY = ("darwin", "win32")


def has_display(environment: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether there is a display to show a page on."""
    return platform in WITH_DISPLAY or any(environment.get(name) for name in DISPLAYS)


def open_page(
    url: str,
    environment: Mapping[str, str],
    platform: str = sys.platform,
    browse: Callable[[str], bool] = webbrowser.open,
) -> bool:
    """Open a page if there is a display; returns whether the browser started."""
    if not has_display(environment, platform):
        return False
    try:
        return browse(url)
    except (webbrowser.Error, OSError):
        return False
