"""The server is killed whose view Spark makes, with its driver or without, and lives again.

    sow serve ──> orders ──> Spark's driver beside it ──> rows of `desks`      the same rows as
        │                                                                      `twin`, which the
      kill -9, at the worst moments of a batch; then the next life             server makes itself

Each life begins where the last was cut off: by itself it starts a driver, which finds the state of
the last one, and the rows follow. Not collected by default, since each life of a driver takes ten
seconds: ``make crash-spark``.
"""

import json
import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

ROOT = Path(__file__).parents[3]
VIEW = """
<View><Name>{name}</Name><MessageType>json</MessageType>
  <UnderlyingTopic>orders</UnderlyingTopic>
  <Projection><Field>/desk</Field><Field>COUNT(1) AS /n</Field><Field>SUM(/qty) AS /qty</Field>
    <Field>AVG(/qty) AS /avg</Field><Field>MIN(/qty) AS /least</Field>
    <Field>MAX(/qty) AS /most</Field></Projection>
  <Grouping><Field>/desk</Field></Grouping><KeyDomain>desks</KeyDomain>
  <Filter>/qty &lt; 0.9</Filter><Engine>{engine}</Engine></View>
"""
CONFIG = f"""<SOWConfig><Name>lives</Name><SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
{VIEW.format(name="desks", engine="spark")}{VIEW.format(name="twin", engine="embedded")}
</SOW></SOWConfig>"""
MOMENTS = (
    ("its first rows have come", "server"),
    ("more was published, which Spark has not seen", "server"),
    ("a batch was written, which Spark has not noted", "server"),
    ("a batch was written, which Spark has not noted", "all"),
    ("its driver has just begun", "all"),
)
WAIT_S = 5
WAITS_MAX = 120
"""Ten minutes for a driver that begins and catches up: it has a low priority, and where others keep
all cores busy it takes two."""
IDS, DESKS = 60, "abcdefg"


class Life:
    """One life of the server, with the driver that it starts."""

    def __init__(self, directory):
        command = [sys.executable, "-m", "sow.cli", "serve", str(directory / "config.xml")]
        self._process = subprocess.Popen(
            [*command, "--port", "0", "--data-dir", str(directory / "data")],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.url = self._process.stdout.readline().split()[3]

    def ask(self, path, document=None, method=None):
        body = None if document is None else json.dumps(document).encode()
        kind = {"Content-Type": "application/json"}
        with urlopen(Request(self.url + path, body, kind, method=method), timeout=60) as answer:
            return answer.read(), answer.headers

    def rows(self, topic):
        """Rows by SowKey, as they are written."""
        found, _ = self.ask(f"/v1/topics/{topic}/records?meta=true&format=ndjson")
        lines = [json.loads(line, parse_float=str, parse_int=str) for line in found.splitlines()]
        return {line["k"]: line["d"] for line in lines}

    def change(self, rng):
        """Updates, moves between desks and out of the filter, and a delete."""
        orders = [
            {"id": id_, "desk": rng.choice(DESKS), "qty": rng.random()}
            for id_ in rng.sample(range(IDS), 12)
        ]
        self.ask("/v1/topics/orders/records", orders)
        some = quote(f"/id = {rng.randrange(IDS)}")
        self.ask(f"/v1/topics/orders/records?filter={some}", method="DELETE")

    def rows_sent(self, after="0"):
        """Wait until Spark has written rows after this bookmark; the last one's, if it has."""
        path = f"/v1/log?topics=desks&from={after}&wait={WAIT_S}&limit=1000000"
        return self.ask(path)[1]["SOW-Bookmark"]

    def newest(self):
        """Where the log of the rows ends."""
        return json.loads(self.ask("/v1/log/extent?topics=desks&from=0")[0])["newest"]

    def follow(self):
        """Wait until Spark's rows are those of the embedded engine."""
        bookmark = "0"
        for _ in range(WAITS_MAX):
            if self.rows("desks") == self.rows("twin"):
                return
            bookmark = self.rows_sent(bookmark)
        assert self.rows("desks") == self.rows("twin")

    def driver(self):
        """The process that runs Spark's driver, once there is one."""
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children")
        for path in (children, *Path(f"/proc/{pid}/task").glob("*/children")):
            with suppress(FileNotFoundError):
                if found := path.read_text().split():
                    return int(found[0])
        return None

    def kill(self, what="server"):
        driver = self.driver()
        self._process.kill()
        if what == "all" and driver is not None:
            with suppress(ProcessLookupError):
                os.killpg(driver, signal.SIGKILL)
        self._process.communicate()

    def stop(self):
        self._process.terminate()
        self._process.communicate(timeout=30)
        return self._process.returncode


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "config.xml").write_text(CONFIG)
    return tmp_path


def test_rows_go_on_in_every_life_of_the_server(directory):
    rng = random.Random(14)
    for moment, what in MOMENTS:
        life = Life(directory)
        try:
            life.change(rng)
            if "begun" not in moment:
                life.follow()
                assert life.rows("twin"), "something to follow"
            if "not seen" in moment:
                life.change(rng)
            elif "written" in moment:
                end = life.newest()
                life.change(rng)
                life.rows_sent(end)
        finally:
            life.kill(what)
    last = Life(directory)
    try:
        last.change(rng)
        last.follow()
        last.ask("/v1/topics/orders/records?filter=1%3D1", method="DELETE")
        last.follow()
        assert last.rows("desks") == {}, "groups without records have gone"
    finally:
        assert last.stop() == 0
