"""What tests of several folders share."""

import pytest
from hypothesis import settings

from tests.recordings import recordings as found_or_made

# No test fails because the machine is busy.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def recordings(tmp_path_factory):
    """The folder of the recorded data; an excerpt that was made when there is none."""
    return found_or_made(tmp_path_factory.mktemp("recordings") / "made")
