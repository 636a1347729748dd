"""A fork is begun, talked to, ended and told of as a process of `subprocess` is."""

import os
import signal
import subprocess
import sys

import pytest

from tests import forks

pytestmark = pytest.mark.edge


def python(code, *words, **how):
    return [sys.executable, "-c", code, *words]


ECHO = "import sys; print(sys.argv, input()); print('ö', file=sys.stderr); sys.exit(3)"


@pytest.mark.parametrize("begin", [forks.Fork, forks.real])
def test_it_reads_writes_and_ends_as_it_likes(begin):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), forks.PIPE)
    with begin(python(ECHO, "a b"), text=True, **pipes) as process:
        assert process.poll() is None
        said = process.communicate("heard", timeout=60)
    assert (said, process.returncode) == (("['-c', 'a b'] heard\n", "ö\n"), 3)


@pytest.mark.parametrize(
    ("code", "returned"),
    [
        ("pass", 0),
        ("raise SystemExit('no')", 1),
        ("raise ValueError", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os; os.abort()", -signal.SIGABRT),
    ],
)
def test_how_it_ended_is_what_it_is_for_python(code, returned):
    assert forks.run(python(code), capture_output=True).returncode == returned


def test_it_has_its_own_folder_environment_and_signals(tmp_path):
    code = "import os, signal; print(os.getcwd(), os.environ['A'], flush=True); signal.pause()"
    command = python(code)
    with forks.started(
        command, stdout=forks.PIPE, text=True, cwd=tmp_path, env={"A": "b"}
    ) as process:
        assert process.stdout.readline() == f"{tmp_path} b\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0)
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
        process.terminate()


def test_a_command_of_a_shell_ends_as_it_would(tmp_path):
    path = f"{forks.programs()}:{os.environ['PATH']}"
    done = subprocess.run(
        "sow topics --url nonsense; echo $?", shell=True,
        cwd=tmp_path, env={"PATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr.startswith("sow: ")) == ("1\n", True)
