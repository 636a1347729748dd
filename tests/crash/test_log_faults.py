"""Faults of six kinds under three nodes of a shared log, judged by a naive model.

SOW_FAULTS says how many an engine (`make faults-log`: 2,000), SOW_SEED where the random numbers
begin. The short version has half of the kinds over NATS, by the seed, and less over others: the
engines themselves are compared by the conformance suite.
"""

import os
import random

import pytest

from tests.crash.faults.__main__ import played
from tests.crash.faults.catalogue import KINDS
from tests.crash.faults.engines import ENGINES

FAULTS = os.environ.get("SOW_FAULTS")
SHORT = {"nats": len(KINDS) // 2, "postgres": 1}
SEED = int(os.environ.get("SOW_SEED", str(random.randrange(10**6))))
pytestmark = [pytest.mark.edge, pytest.mark.nats_server]


@pytest.mark.parametrize("name", ENGINES)
def test_faults_lose_and_double_nothing(tmp_path, capsys, name):
    count = SHORT[name] if FAULTS is None else int(FAULTS)
    kinds = [KINDS[(SEED + at) % len(KINDS)] for at in range(count)]
    run = played(name, kinds, SEED, tmp_path)
    with capsys.disabled():
        print(f"\n{name}, seed {SEED}: {run.facts}, {dict(run.waits_s)}")
    assert run.verdict.is_good, "\n".join(run.verdict.named)
