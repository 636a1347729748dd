"""What the tests of the benchmarks share: nothing is measured there, so servers may be forks."""

import pytest

from tests import forks
from tests.benchmarks.processes import Child


@pytest.fixture(scope="session", autouse=True)
def forked():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Child, "begin", staticmethod(forks.started))
        yield
