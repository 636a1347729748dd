"""The clock of a loop that a busy machine holds up."""

from types import SimpleNamespace

import pytest

from tests.server import stand_ins
from tests.server.stand_ins import STEP_S, SteadyLoop


def test_a_stall_passes_no_more_than_a_step_and_a_wait_as_long_as_it_is(monkeypatch):
    machine = SimpleNamespace(now_s=100.0)
    monkeypatch.setattr(stand_ins, "time", SimpleNamespace(monotonic=lambda: machine.now_s))
    loop = SteadyLoop()
    try:
        machine.now_s += 10.0
        assert loop.time() == pytest.approx(STEP_S)
        machine.now_s += STEP_S / 2
        assert loop.time() == pytest.approx(1.5 * STEP_S)
        machine.now_s += 0.7
        assert loop.pass_by(1.0) == pytest.approx(1.5 * STEP_S + 0.7)
    finally:
        loop.close()
