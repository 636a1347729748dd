"""What tests of several folders share, and how they are dealt out to the cores of a machine.

A run over all cores (`make unit`: ``-n auto --dist loadscope``) hands out groups. A group is a
file, so that a server made for a file is made once; of the folders in `ONE_PROCESS` it is the
folder, but for files that do not use what it shares. Longest first, so that no core is left with a
long group when the others have nothing left.
"""

import functools
import gc
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import forks
from tests.effort import TIMES
from tests.garbage import collect
from tests.needs import LeftOut, check_may_open_pages
from tests.pages import Browser
from tests.recordings import recordings as found_or_made

TESTS = Path(__file__).parent

ONE_PROCESS = ("spark", "browser", "cluster", "crash/spark")
"""Folders whose tests share one costly thing, such as Spark's JVM, of which one is enough."""
ON_REQUEST = {"cluster"}
"""Folders that only a run reads that names them."""
SHARED = {"spark": re.compile(r"def \w+\([^)]*\bspark\b")}
"""How a file of such a folder names what they share; others of it go to any core."""

LONGEST = ("spark", "crash", "browser", "benchmarks", "storm", "soak", "simulation", "fuzz")
"""What takes longest, in this order; the rest follows as it is collected."""

# Tests start some hundred processes, and each core reads all test files. Where the environment
# asks Python to write no bytecode down, as in many containers, every one of them would compile
# everything again: half of what it costs to begin.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# What is read now stays (`pytest_collection_finish`): the collector would look through all of it
# again and again as it grows, a fifth of what it costs to begin.
gc.disable()

# Nothing here is signed by an authority that the machine trusts. aiohttp reads them all, twice,
# when it is imported: a tenth of what it costs to start a server.
os.environ["SSL_CERT_FILE"] = os.devnull

IN_MEMORY = Path("/dev/shm")
ROOM_BYTES_MIN = 8 * 1024**3
"""Several times what the folders of all tests take, which go when all have passed."""

# Tests make thousands of journals, and each commit waits for the disk. What is written is the same;
# no test cuts the power.
if IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free >= ROOM_BYTES_MIN:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))

# A shell has what it starts in the background, and all that this starts, ignore Ctrl-C; some tests
# press it.
signal.signal(signal.SIGINT, signal.default_int_handler)

NOTHING_RUN = pytest.ExitCode.NO_TESTS_COLLECTED

EXAMPLES = 30
"""What a property tries that does not say how much: a third of what Hypothesis would."""

# How long an example takes says how busy the machine is, and nothing about the code. The default
# run tries the same examples each time, as it has the same seeds: what one run of a hundred finds
# is looked for by `make laws`, and is no fault of the change that is just to land.
settings.register_profile(
    "sow",
    max_examples=EXAMPLES * TIMES,
    derandomize=TIMES == 1,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("sow")


@functools.cache
def group_of(path: Path) -> str:
    """Which group a test file belongs to."""
    place = path.relative_to(TESTS).as_posix()
    folder = next((folder for folder in ONE_PROCESS if place.startswith(f"{folder}/")), place)
    is_alone = folder in SHARED and not SHARED[folder].search(path.read_text())
    return place if is_alone else folder


@functools.cache
def rank_of(path: Path) -> int:
    """How early a test file is handed out."""
    folder = path.relative_to(TESTS).parts[0]
    return LONGEST.index(folder) if folder in LONGEST else len(LONGEST)


def begun_elsewhere(places, number, core):
    """The places to read tests from: where all are read, each core begins with other folders.

    In a fresh clone reading a file is mostly compiling it. What another core has read is compiled
    already; if all began in one place, each would compile everything.
    """
    if [Path(place).resolve() for place in places] != [TESTS]:
        return places
    found = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
    folders = sorted(found - ON_REQUEST)
    first = len(folders) * number // core["workercount"]
    return [str(TESTS / name) for name in folders[first:] + folders[:first]]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """One more than there are cores: while one waits, for Java, a server or the disk, another one
    works. Each reads all test files, so that two more would cost what they bring."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count())
    return len(cores) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    # The mark `xdist_group` says nothing to xdist under pytest 9, which keeps a test's name apart.
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return group_of(TESTS.parent / nodeid.partition("::")[0])

    return ByGroup(config, log)


TEST_S_MAX = int(os.environ.get("SOW_TEST_S_MAX", "0"))
"""After how many seconds a test fails that does not end, many times what the longest takes; 0:
never. A test that does not end would take all the time of a run, and nothing would name it."""


def on_alarm(_signal, _frame):
    pytest.fail(f"does not end: still running after {TEST_S_MAX} s")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """End a test that does not end. Not the process: xdist waits forever for its other tests."""
    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(TEST_S_MAX)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Say which test runs, where it is measured: its loops and threads count for it, too."""
    coverage = sys.modules.get("coverage")
    measuring = coverage.Coverage.current() if coverage is not None else None
    if measuring is not None:
        measuring.switch_context(item.nodeid)
    return (yield)


LEFT_OUT = pytest.StashKey[LeftOut]()


def pytest_configure(config):
    if config.getoption("numprocesses", None):
        forks.prepare()  # One for all cores; else it begins when it is first asked.
    config.stash[LEFT_OUT] = LeftOut()
    if core := getattr(config, "workerinput", None):
        config.args = begun_elsewhere(config.args, int(core["workerid"].removeprefix("gw")), core)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    # Last: what was not asked for is not missed.
    if left := config.stash[LEFT_OUT].leave_out(items):
        config.hook.pytest_deselected(items=left)
    items.sort(key=lambda item: (rank_of(item.path), item.path))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    node.config.stash[LEFT_OUT].hear(getattr(node, "workeroutput", {}).get("left_out", {}))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session):
    """Say what was left out: a core to who has started it, the run in its last line."""
    left_out = session.config.stash[LEFT_OUT]
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = left_out.counts
        return (yield)
    finished = yield
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if line := left_out.line():
        terminal.write_line(line, red=left_out.fails, yellow=not left_out.fails)
    if left_out.fails and session.exitstatus in (pytest.ExitCode.OK, NOTHING_RUN):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    return finished


def pytest_collection_finish():
    """The tests themselves, some hundred thousand objects, are no garbage to be looked through."""
    gc.freeze()
    # What tests leave behind is small: looking for it less often saves a thirtieth of their time.
    gc.set_threshold(10_000)
    gc.enable()
    # A server freezes what is old: what a test has left open would come to light in another file.
    if (app := sys.modules.get("sow.server.boot.app")) is not None:
        app.owns_process = lambda: False


def pytest_unconfigure():
    """DuckDB complains at the end of all that is not freed, and what is frozen is not."""
    if "duckdb" in sys.modules:
        gc.unfreeze()


@pytest.fixture(scope="module", autouse=True)
def own_garbage():
    """What a file leaves open fails its own last test, and not one of another file, in which the
    collector happens to run."""
    yield
    collect()


@pytest.fixture(scope="session")
def one_browser():
    """The Chromium of a process, for `browser`."""
    found = Browser()
    yield found
    found.close()


@pytest.fixture
def browser(request):
    """A Chromium, for tests that are marked `browser`."""
    check_may_open_pages(request.node.get_closest_marker("browser") is not None)
    return request.getfixturevalue("one_browser")


@pytest.fixture
def pages(request):
    """Opens pages, each in a context of its own; the browser starts with the first."""
    return lambda **options: request.getfixturevalue("browser").page(**options)


@pytest.fixture(scope="session")
def recordings(tmp_path_factory):
    """The folder of the recorded data; an excerpt that was made when there is none."""
    return found_or_made(tmp_path_factory.mktemp("recordings") / "made")
