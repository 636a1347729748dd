"""Faults under three nodes of a shared log, judged by a naive model: a short version.

SOW_SEED chooses the engine and the two kinds of faults, of those that cost least; all of them are
played by `make faults-log`. The engines are compared by the conformance suite.
"""

import os
import random

import pytest

from tests.crash.faults.__main__ import played
from tests.crash.faults.engines import ENGINES

KINDS = ("node killed", "silent partition", "node paused", "disk of a node full")
SEED = int(os.environ.get("SOW_SEED", "20261130"))
pytestmark = [pytest.mark.edge, pytest.mark.nats_server, pytest.mark.postgres_server]


def test_faults_lose_and_double_nothing(tmp_path, capsys):
    name = sorted(ENGINES)[SEED % len(ENGINES)]
    run = played(name, random.Random(SEED).sample(KINDS, 2), SEED, tmp_path)
    with capsys.disabled():
        print(f"\n{name}, seed {SEED}: {run.facts}, {dict(run.waits_s)}")
    assert run.verdict.is_good, "\n".join(run.verdict.named)
