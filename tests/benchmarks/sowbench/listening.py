"""Listeners: a process that holds the followers of one workload, and says what they heard.

    python -m tests.benchmarks.sowbench.listening SPEC ADDRESS TASK

The first, the middle and the last follower read every record as it comes. Of the others the system
counts the bytes and throws them away, or reading would cost more than what is measured; they must
be as many as the first one's, and in a closing round, every record once more, all read, so that
the last state of every follower is known. With filters each follower has some of them and reads
all that it is sent.

Some do not read as they should: `slow` reads once every 0.5 s, 256 KiB at most, `stopped` nothing
until all was published, `returns` breaks its connection in the middle and comes back. Who is cut
off by the server comes back as well.
"""

import contextlib
import json
import select
import socket
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from tests.benchmarks.processes import Child
from tests.benchmarks.sockets import READ_BYTES
from tests.benchmarks.sowbench.adapter import START_S_MAX, Adapter, Cannot, Follower, How, made
from tests.benchmarks.sowbench.hearing import Heard, Verdict, in_quantiles
from tests.benchmarks.sowbench.load import Load

LOOK_S = 0.02
"""Interval at which it is seen whether all is there, and the other sockets are emptied."""
QUIET_S = 0.2
"""Nothing comes twice so long after everything was there."""
ALIVE_S = 3.0
PATIENCE_S = 20.0
SLOW_S = 0.5
BUFFER_BYTES = 4 << 20
BYTES_OFF = 0.02
"""Frames are cut as sockets take them, so their heads differ."""


class Task(NamedTuple):
    """Who listens to what."""

    load: Load
    how: How
    count: int = 1
    mode: str = ""
    since: int = 0
    """The record from which on lateness counts."""
    patience_s: float = PATIENCE_S


class Found(NamedTuple):
    """What was heard: of the first, middle and last follower, except `stale_followers` of all."""

    late: dict[str, float]
    bytes_each: int
    verdict: Verdict
    stale_followers: int
    returns: int
    current_ms: float
    """From the word that all was published until all was there."""
    complete_ms: float
    """From asking to follow until every record had come once."""

    def seam(self) -> str:
        """What a follower that came back, or had a snapshot, met there."""
        counts = {"gaps": self.verdict.missing, "repeats": self.verdict.repeated}
        counts["older states"] = self.verdict.disordered
        return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count > 0)

    def fault(self, every: bool = True) -> str:
        """What is wrong, in words. Unless `every` update was wanted, only the last states count,
        and that no record went back to an older one, save where a follower came back."""
        verdict = self.verdict
        if not every:
            older = 0 if self.returns else verdict.disordered
            verdict = verdict._replace(missing=0, repeated=0, disordered=older)
        stale = f"{self.stale_followers} followers not current"
        return ", ".join(filter(None, (verdict.words(), stale * bool(self.stale_followers))))


class Listeners(Child):
    """The parent's end."""

    def __init__(self, spec: str, address: str, task: Task) -> None:
        super().__init__("-m", __name__, spec, address, json.dumps(task))

    def prepared(self) -> None:
        """Wait until everything is made."""
        assert self.hear() == "prepared"

    def ready(self) -> None:
        """Let all follow, and wait until they do. Raises Cannot."""
        self.say("go")
        said = self.hear()
        if said != "ready":
            self.end()
            raise Cannot(said.removeprefix("cannot: "))

    def found(self, begin_s: float, step_s: float, close: Callable[[], None]) -> Found:
        """Say that all was published, and when; `close` publishes the closing round if there is
        one."""
        self.say(json.dumps((begin_s, step_s)))
        said = self.hear()
        if said == "close":
            close()
            self.say("closed")
            said = self.hear()
        late, size, verdict, *rest = json.loads(said)
        return Found(late, size, Verdict(*verdict), *rest)


class One:
    """A follower in the child. Without `heard` its bytes are only counted."""

    def __init__(self, adapter: Adapter, how: How, mode: str, heard: Heard | None) -> None:
        self._adapter, self._how = adapter, how
        self.mode, self.heard = mode, heard
        self.began_s = time.monotonic()
        self.follower = self._following(how)
        self.bytes = self.returns = 0
        self._next_s = 0.0
        self._take_what_is_there()

    def _take_what_is_there(self) -> None:
        """What an adapter has read to begin with does not make the socket readable."""
        if self.heard is not None and self.mode != "stopped":
            with contextlib.suppress(BlockingIOError):
                self.heard.take(self.follower.read(), time.monotonic())

    def _following(self, how: How) -> Follower:
        give_up = time.monotonic() + START_S_MAX
        while True:
            try:
                found = self._adapter.follow(how)
                break
            except ConnectionError:
                # It may be on its way up again.
                if time.monotonic() > give_up:
                    raise
                time.sleep(LOOK_S)
        found.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        found.socket.setblocking(False)
        return found

    def is_reading(self, now_s: float) -> bool:
        """Whether it would take something now."""
        return self.heard is not None and self.mode != "stopped" and now_s >= self._next_s

    def read(self, now_s: float, middle: int) -> None:
        """Take what has come."""
        heard = self.heard
        assert heard is not None
        try:
            heard.take(self.follower.read(), now_s)
        except ConnectionError:
            self._come_back(heard)
        if self.mode == "slow":
            self._next_s = now_s + SLOW_S
        elif self.mode == "returns" and heard.numbers and heard.numbers[-1] >= middle:
            self.mode = ""
            self._come_back(heard)

    def _come_back(self, heard: Heard) -> None:
        """Follow again from where it was, or with all records."""
        place = self.follower.place
        self.follower.socket.close()
        heard.forget_cut()
        self.returns += 1
        self.follower = self._following(self._how._replace(after=place, snapshot=not place))
        self._take_what_is_there()

    def skim(self, nothing: bytearray) -> None:
        """For TCP the system counts and drops without copying (tcp(7))."""
        size = READ_BYTES
        with contextlib.suppress(BlockingIOError):
            while size == READ_BYTES:
                size = self.follower.socket.recv_into(nothing, READ_BYTES, socket.MSG_TRUNC)
                if not size:
                    raise ConnectionError("the server closed a follower's connection")
                self.bytes += size


class Crowd:
    """The child: all followers."""

    def __init__(self, adapter: Adapter, task: Task) -> None:
        self._task = task
        count, symbols = task.count, task.how.symbols
        chosen = set(range(count)) if symbols else {0, count // 2, count - 1}
        self._ones: list[One] = []
        for number in range(count):
            how = task.how._replace(symbols=symbols[number::count])
            heard = Heard(task.load, how.symbols) if number in chosen else None
            self._ones.append(One(adapter, how, task.mode, heard))
        self._middle = task.load.first + task.load.count // 2
        self._nothing = bytearray(READ_BYTES)
        self._looked_s = self._alive_s = self._data_s = time.monotonic()

    def hear(self) -> str:
        """Listen until standard input says something; what it said."""
        while not (line := self._look(stdin=True)):
            pass
        return line

    def hear_all(self) -> float:
        """Listen until all that read are current and it is quiet, or patience ends; how many ms it
        took until they were current."""
        for one in self._ones:
            one.mode = ""
        begin_s = current_s = self._data_s = time.monotonic()
        is_current = False
        while time.monotonic() < begin_s + self._task.patience_s:
            self._look(stdin=False)
            if not is_current:
                current_s = time.monotonic()
                is_current = all(one.heard.is_current() for one in self._ones if one.heard)
            elif time.monotonic() - max(self._data_s, current_s) > QUIET_S:
                break
        return (current_s - begin_s) * 1000

    def _look(self, stdin: bool) -> str:
        """Take what has come, or wait a little for something; a line of standard input."""
        now_s = time.monotonic()
        reading = {one.follower.socket.fileno(): one for one in self._ones if one.is_reading(now_s)}
        poll = select.poll()
        for number in (*reading, *([sys.stdin.fileno()] * stdin)):
            poll.register(number, select.POLLIN)
        found, line = poll.poll(LOOK_S * 1000), ""
        now_s = time.monotonic()
        for number, _ in found:
            if number in reading:
                reading[number].read(now_s, self._middle)
                self._data_s = now_s
            else:
                line = sys.stdin.readline().strip() or "gone"
        if now_s - self._looked_s > LOOK_S:
            self._looked_s = now_s
            for one in self._ones:
                if one.heard is None:
                    one.skim(self._nothing)
            self._stay_alive(now_s)
        return line

    def _stay_alive(self, now_s: float) -> None:
        if now_s - self._alive_s > ALIVE_S:
            self._alive_s = now_s
            for one in self._ones:
                if one.follower.alive and one.mode != "stopped":
                    one.follower.socket.send(one.follower.alive)

    def found(self, begin_s: float, step_s: float) -> Found:
        """All that was heard, after the closing round if one is needed."""
        current_ms = self.hear_all()
        ones = [(one, one.heard) for one in self._ones if one.heard is not None]
        size = ones[0][1].bytes
        stale = self._close_up(size) if len(ones) < len(self._ones) else 0
        verdicts = [heard.verdict(self._task.how.snapshot) for _, heard in ones]
        since = self._task.since
        late_ms = [late for _, heard in ones for late in heard.late_ms(begin_s, step_s, since)]
        worst = Verdict(*map(max, zip(*verdicts, strict=True)))
        returns = sum(one.returns for one, _ in ones)
        complete_ms = max((heard.complete_s() - one.began_s) * 1000 for one, heard in ones)
        late = in_quantiles(late_ms)
        return Found(late, size, worst, stale, returns, current_ms, complete_ms)

    def _close_up(self, size: int) -> int:
        """The closing round: how many followers lack bytes, or are not current after it."""
        before = [one.heard for one in self._ones]
        # Under conflation each may have met other windows.
        most = size if self._task.how.conflated_ms else size * BYTES_OFF
        off = [not one.heard and abs(one.bytes - size) > most for one in self._ones]
        load = self._task.load.closing()
        for one in self._ones:
            one.heard = Heard(load)
        say("close")
        self.hear()
        self.hear_all()
        stale = sum(
            is_off or not (one.heard and one.heard.is_current())
            for one, is_off in zip(self._ones, off, strict=True)
        )
        for one, heard in zip(self._ones, before, strict=True):
            one.heard = heard
        return stale


def say(line: str) -> None:
    print(line, flush=True)


def main(spec: str, address: str, task: str) -> None:
    """The child."""
    load, how, *rest = json.loads(task)
    asked = Task(Load(*load), How(*how), *rest)
    asked.load.records()
    say("prepared")
    sys.stdin.readline()
    try:
        crowd = Crowd(made(spec, address), asked)
    except Cannot as cannot:
        say(f"cannot: {cannot}")
        return
    say("ready")
    line = crowd.hear()
    if line != "gone":
        found = crowd.found(*json.loads(line))
        say(json.dumps(found))
        sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
