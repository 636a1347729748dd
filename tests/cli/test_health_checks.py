"""What figures say to who runs a server: each is found good, doubtful and bad where it may be."""

from sow.cli import health_checks
from sow.cli.measuring import Percentiles
from tests.cases import all_cases

GIB = 1024**3


def spread(median_s):
    return Percentiles(20, median_s, median_s, 2 * median_s)


def node(url, bookmark, state_hash="same"):
    return {"url": url, "bookmark": bookmark, "state_hash": state_hash}


def session(lag_ms):
    return {"lag_ms": lag_ms, "client": "grid", "id": "7", "queue_messages": 9000}


def certificate(days):
    now_s = 1_800_000_000.0
    (found,) = health_checks.certificates({"c.pem": now_s + days * health_checks.DAY_S}, now_s)
    return found


@all_cases(
    ("found", "level", "said"),
    [
        (
            health_checks.disk(50 * GIB, 100 * GIB, GIB, "data"),
            "ok",
            "50 GiB of 100 GiB free for data",
        ),
        (health_checks.disk(5 * GIB, 100 * GIB, GIB, "data"), "warning", "free some space"),
        (health_checks.disk(GIB, 100 * GIB, GIB, "data"), "error", "publishes are refused"),
        (
            health_checks.retention(4 * GIB, GIB, 9 * GIB),
            "ok",
            "keeps up to 4.0 GiB, and takes 1.0 GiB",
        ),
        (health_checks.retention(4 * GIB, GIB, GIB), "warning", "set a smaller RetentionSize"),
        (health_checks.fsync(spread(0.002)), "ok", "median 2 ms"),
        (health_checks.fsync(spread(0.03)), "warning", "a faster disk"),
        (health_checks.fsync(spread(0.000001)), "warning", "this one is in memory"),
        (health_checks.files(None, 20_000), "ok", "unlimited files"),
        (health_checks.files(65536, 20_000), "ok", "65,536 files for 20,000 connections"),
        (health_checks.files(1024, 20_000), "warning", "raise ulimit -Hn to 20,512"),
        (health_checks.inner_loops("C"), "ok", "inner loops in C"),
        (health_checks.inner_loops("Python"), "ok", "with a C compiler, install SOW again"),
        (health_checks.clock(0.5), "ok", "not behind"),
        (health_checks.clock(7200), "warning", "2 h behind earlier writes"),
        (health_checks.memory(GIB, None), "ok", "set Limits/Memory"),
        (health_checks.memory(GIB, float("inf")), "ok", "without a limit"),
        (health_checks.memory(GIB, 4 * GIB), "ok", "1.0 GiB of 4.0 GiB"),
        (health_checks.memory(3.9 * GIB, 4 * GIB), "warning", "raise Limits/Memory"),
        (health_checks.memory(4 * GIB, 4 * GIB), "error", "raise Limits/Memory"),
        (health_checks.groups(0, GIB), "ok", "take 0 B of 1.0 GiB"),
        (health_checks.groups(0.95 * GIB, GIB), "warning", "raise Limits/GroupMemory"),
        (health_checks.connections(10, 100), "ok", "10 of 100"),
        (health_checks.connections(95, 100), "warning", "raise Limits/Connections"),
        (health_checks.sessions([]), "ok", "0, and all keep up"),
        (health_checks.sessions([session(5), session(2500)]), "warning", "grid is 2.5 s behind"),
        (health_checks.nodes([node("a", "7")]), "ok", "1 of 1 heard, and the same state"),
        (health_checks.nodes([node("a", "7"), node("b", "7")]), "ok", "2 of 2 heard"),
        (health_checks.nodes([node("a", "7"), node("b", "8")]), "ok", "ask when fewer changes"),
        (
            health_checks.nodes([node("a", "7"), node("b", None, None)]),
            "warning",
            "1 of 2 heard, not b; start them",
        ),
        (
            health_checks.nodes([node("a", "7"), node("b", "7", "other")]),
            "error",
            "nodes differ at bookmark 7: a has same; b has other",
        ),
        (health_checks.steps({}), "ok", "no long step"),
        (health_checks.steps({"a query": 0.2}), "ok", "took 200 ms: a query"),
        (health_checks.steps({"a query": 0.2, "a stream": 0.9}), "warning", "900 ms: a stream"),
        (certificate(31), "ok", "c.pem ends in 31 days"),
        (certificate(29.5), "warning", "c.pem ends in 29 days; renew it, then: sow reload"),
        (certificate(-2), "error", "c.pem has ended 2 d ago"),
        (health_checks.topics([{"name": "a", "stopped": None}]), "ok", "none has stopped"),
        (health_checks.topics([{"name": "a", "stopped": "it failed"}]), "error", "a: it failed"),
        (health_checks.readiness(200, "ok")[0], "ok", "ok"),
        (health_checks.readiness(200, "ok; 1 views")[1], "ok", "no error since the start"),
        (health_checks.readiness(503, "replaying: 3 of 9")[0], "error", "replaying: 3 of 9"),
        (health_checks.readiness(200, "ok; so; last error T: a; b")[0], "ok", "ok; so"),
        (
            health_checks.readiness(503, "full; last error T: a; b")[1],
            "warning",
            "last error T: a; b",
        ),
        (health_checks.answers(spread(0.001)), "ok", "median 1 ms"),
    ],
)
def test_what_is_found_is_said_with_what_to_do(found, level, said):
    assert (found.level, said in f"{found.found}; {found.instead}") == (level, True), found
    assert bool(found.instead) or level == "ok", "what is not as it should be can be mended"
