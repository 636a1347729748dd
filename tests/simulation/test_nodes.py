"""Some seeds of several nodes; `make simulate` runs hundreds (`tests.simulation.nodes`)."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.effort import seeds


def play(module, seed):
    # In a process of its own, where the order of sets follows from the seed as well.
    command = [sys.executable, "-m", module, "--seed", str(seed), "--steps", "60"]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("seed", seeds(3))
def test_all_nodes_show_what_the_primary_shows(seed):
    play("tests.simulation.nodes", seed)


@pytest.mark.parametrize("seed", [28])
def test_nodes_of_a_shared_log_show_what_a_naive_model_does(seed):
    play("tests.simulation.nodes.log_run", seed)
