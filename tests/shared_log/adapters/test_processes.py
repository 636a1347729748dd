"""What a test starts ends with it, also if the test is killed."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared_log.adapters.processes import ROOT, Processes, signal_all, tree, until

pytestmark = pytest.mark.edge

KILLED = """
import os, signal
from tests.shared_log.adapters.processes import Processes
processes = Processes("killed")
processes.start("parent", "sh", "-c", "sleep 600 & echo $! > child; wait")
while not (processes.directory / "child").read_text().strip():
    pass
print(processes.directory, (processes.directory / "child").read_text().strip(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def state(pid):
    """How a process is; "" if it has ended."""
    done = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True)
    return done.stdout.strip().replace("Z", "")[:1]


def test_processes_and_their_directory_go_with_a_test_that_is_killed():
    program = KILLED.replace(
        "while not", "while not (processes.directory / 'child').exists() or not"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    directory, child = done.stdout.split()
    until(lambda: not state(child), "the child has ended")
    until(lambda: not Path(directory).exists(), "the directory is gone")


def test_a_process_is_paused_and_killed_with_its_children():
    processes = Processes("paused")
    try:
        processes.start("parent", "sh", "-c", "sleep 600 & sleep 600 & wait")
        parent = processes._running["parent"].pid
        until(lambda: len(tree(parent)) == 3, "it has children")
        pids = tree(parent)
        processes.pause("parent")
        until(lambda: [state(pid) for pid in pids] == ["T"] * 3, "all are paused")
        processes.go_on("parent")
        until(lambda: "T" not in [state(pid) for pid in pids], "all go on")
        processes.pause("parent")
        processes.kill("parent")
        until(lambda: not any(state(pid) for pid in pids), "all have ended")
        signal_all(parent, signal.SIGCONT)  # nobody is there
    finally:
        processes.close()
    assert not processes.directory.exists()
