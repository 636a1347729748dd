"""Opening a page for whoever sits in front of this machine, if anybody does.

Only where there is a display: without one Python would start a browser of the terminal, over what
is shown there.
"""

import sys
import webbrowser
from collections.abc import Callable, Mapping

DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
"""By which of them a program of X11 or Wayland knows where to draw."""
WITH_DISPLAY = ("darwin", "win32")


def has_display(environment: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether a page could be seen."""
    return platform in WITH_DISPLAY or any(environment.get(name) for name in DISPLAYS)


def open_page(
    url: str,
    environment: Mapping[str, str],
    platform: str = sys.platform,
    browse: Callable[[str], bool] = webbrowser.open,
) -> bool:
    """Open a page if it can be seen; whether that was tried and began well."""
    if not has_display(environment, platform):
        return False
    try:
        return browse(url)
    except (webbrowser.Error, OSError):
        return False
