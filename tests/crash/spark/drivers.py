"""A stream's driver is killed at the worst moments, and started again from its checkpoint.

Not collected by default, since each life of a driver takes ten seconds: ``make crash-spark``.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

from sow.spark.pipelines import TOO_BUSY
from tests.crash.spark.pipeline import ROWS_A_BATCH
from tests.spark.proxy import Cut
from tests.spark.test_faults import end_of_log, ids, publish

ROOT = Path(__file__).parents[3]
ROWS = 2 * ROWS_A_BATCH
BEGUN_MAX = 5
"""As often a pipeline begins its query again."""
MOMENTS = {
    ("after", "stage", 0): 0,
    ("before", "commit", 0): 0,
    ("after", "commit", 0): ROWS_A_BATCH,
    ("after", "commit", 1): ROWS,
}
"""When a driver is killed: before or after a step of a batch; and how many rows are there then."""


class Drivers:
    """A proxy's way that kills the driver at one moment of its life."""

    def __init__(self, url, checkpoint):
        self._command = [sys.executable, "-m", "tests.crash.spark.pipeline", url, str(checkpoint)]
        self._moment = self._process = None
        self.commits = []

    def run(self, moment=None):
        """The end of a driver that is killed at this moment, or of one that is left alone. One that
        a busy machine has ended is begun again, as a pipeline is."""
        self._moment = moment
        for _ in range(BEGUN_MAX):
            with TemporaryFile("w+") as said:
                end = self._live(said)
                said.seek(0)
                if end <= 0 or TOO_BUSY not in said.read():
                    break
        return end

    def _live(self, said):
        self._process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        return self._process.wait()

    def __call__(self, requested, forward):
        batch = requested.path.split("/")[4] if requested.step in ("stage", "commit") else None
        when, *what = self._moment or (None,)
        is_now = what == [requested.step, batch and int(batch)]
        if not (is_now and when == "before"):
            told = forward()
            if requested.step == "commit":
                self.commits.append((int(batch), json.loads(told.body)["duplicate"]))
            if not is_now:
                return told
        raise self._killed()

    def _killed(self):
        """Kill Python and Java; whoever asks hears nothing. Spark's Python workers are a group of
        their own, and may live long enough to ask once more: what the dead leave behind must do no
        harm either."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return Cut()


def test_each_row_is_copied_once_however_often_the_driver_is_killed(server, proxy, tmp_path):
    start = end_of_log(server)
    publish(server, 0, ROWS)
    proxy.way = drivers = Drivers(proxy.url, tmp_path / "checkpoint")
    commits = tmp_path / "checkpoint" / "commits"
    for moment, count in MOMENTS.items():
        assert drivers.run(moment) == -signal.SIGKILL
        assert ids(server, "loud", start) == list(range(count))
        assert not (commits / str(moment[2])).exists()  # Spark has not noted the batch yet
    assert drivers.run() == 0
    assert ids(server, "loud", start) == list(range(ROWS))
    assert [batch for batch, duplicate in drivers.commits if not duplicate] == [0, 1]
    assert {batch for batch, duplicate in drivers.commits if duplicate} == {0, 1}
    assert (commits / "1").exists()
