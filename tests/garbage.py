"""Collecting all that tests have left: what is open complains then, and not in a later test."""

import gc
import sys

ROUNDS_MAX = 10
"""What is collected may begin more as it ends, and that again, but not for ever."""


def collect():
    """Collect all garbage. aiohttp remembers the handlers of the applications that were last in
    use, and so whole servers, which would be collected when later tests have made others."""
    if (app := sys.modules.get("aiohttp.web_app")) is not None:
        app._cached_build_middleware.cache_clear()
    for _ in range(ROUNDS_MAX):
        if not gc.collect():
            break
