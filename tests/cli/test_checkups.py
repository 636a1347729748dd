"""What figures say to who runs a server: each is found good, doubtful and bad where it may be."""

import pytest

from sow.cli import checkups
from sow.cli.spread import Spread

GIB = 1024**3


def spread(median_s):
    return Spread(20, median_s, median_s, 2 * median_s)


def session(lag_ms):
    return {"lag_ms": lag_ms, "client": "grid", "id": "7", "queue_messages": 9000}


def certificate(days):
    now_s = 1_800_000_000.0
    (found,) = checkups.certificates({"c.pem": now_s + days * checkups.DAY_S}, now_s)
    return found


@pytest.mark.parametrize(
    ("found", "level", "said"),
    [
        (checkups.disk(50 * GIB, 100 * GIB, GIB, "data"), "ok", "50 GiB of 100 GiB free for data"),
        (checkups.disk(5 * GIB, 100 * GIB, GIB, "data"), "warning", "free some space"),
        (checkups.disk(GIB, 100 * GIB, GIB, "data"), "error", "publishes are refused"),
        (checkups.retention(4 * GIB, GIB, 9 * GIB), "ok", "keeps up to 4.0 GiB, and takes 1.0 GiB"),
        (checkups.retention(4 * GIB, GIB, GIB), "warning", "set a smaller RetentionSize"),
        (checkups.fsync(spread(0.002)), "ok", "median 2 ms"),
        (checkups.fsync(spread(0.03)), "warning", "a faster disk"),
        (checkups.fsync(spread(0.000001)), "warning", "this one is in memory"),
        (checkups.files(None, 20_000), "ok", "any number of files"),
        (checkups.files(65536, 20_000), "ok", "65,536 files for 20,000 connections"),
        (checkups.files(1024, 20_000), "warning", "raise ulimit -Hn to 20,512"),
        (checkups.clock(0.5), "ok", "not behind"),
        (checkups.clock(7200), "warning", "behind what was written by 2 h"),
        (checkups.memory(GIB, None), "ok", "set Limits/Memory"),
        (checkups.memory(GIB, float("inf")), "ok", "may take any amount"),
        (checkups.memory(GIB, 4 * GIB), "ok", "1.0 GiB of 4.0 GiB"),
        (checkups.memory(3.9 * GIB, 4 * GIB), "warning", "raise Limits/Memory"),
        (checkups.memory(4 * GIB, 4 * GIB), "error", "raise Limits/Memory"),
        (checkups.connections(10, 100), "ok", "10 of 100"),
        (checkups.connections(95, 100), "warning", "raise Limits/Connections"),
        (checkups.sessions([]), "ok", "0, and all keep up"),
        (checkups.sessions([session(5), session(2500)]), "warning", "grid is 2.5 s behind"),
        (checkups.steps({}), "ok", "none was long"),
        (checkups.steps({"a query": 0.2}), "ok", "took 200 ms: a query"),
        (checkups.steps({"a query": 0.2, "a stream": 0.9}), "warning", "900 ms: a stream"),
        (certificate(31), "ok", "c.pem ends in 31 days"),
        (certificate(29.5), "warning", "c.pem ends in 29 days; renew it, then: sow reload"),
        (certificate(-2), "error", "c.pem has ended 2 d ago"),
        (checkups.topics([{"name": "a", "stopped": None}]), "ok", "none has stopped"),
        (checkups.topics([{"name": "a", "stopped": "it failed"}]), "error", "a: it failed"),
        (checkups.readiness(200, "ok")[0], "ok", "ok"),
        (checkups.readiness(200, "ok; 1 views")[1], "ok", "no error since the start"),
        (checkups.readiness(503, "replaying: 3 of 9")[0], "error", "replaying: 3 of 9"),
        (checkups.readiness(200, "ok; so; last error T: a; b")[0], "ok", "ok; so"),
        (checkups.readiness(503, "full; last error T: a; b")[1], "warning", "last error T: a; b"),
        (checkups.answers(spread(0.001)), "ok", "median 1 ms"),
    ],
)
def test_what_is_found_is_said_with_what_to_do(found, level, said):
    assert (found.level, said in f"{found.found}; {found.instead}") == (level, True), found
    assert bool(found.instead) or level == "ok", "what is not as it should be can be mended"
