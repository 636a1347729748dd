"""How long the fuzz tests search, and the server they share.

By default each test tries some forty inputs, always the same ones: after the first time more would
take longer and find nothing. `SOW_FUZZ_EXAMPLES=5000` (which `make fuzz` sets) tries that many, new
ones every time; a failure prints how to repeat it.
"""

import os

from hypothesis import HealthCheck, settings

from tests.edge.conftest import running
from tests.effort import TIMES

__all__ = ["running"]

EXAMPLES = int(os.environ.get("SOW_FUZZ_EXAMPLES", "0"))

settings.register_profile(
    "fuzz",
    max_examples=EXAMPLES or 40 * TIMES,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    print_blob=bool(EXAMPLES),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
FUZZ = settings.get_profile("fuzz")
