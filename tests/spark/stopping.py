"""`format("stopping")`: the data source `sow`, whose first task stops to be killed.

The first attempt at the first part lets some batches pass, then tells the `Gate` of the test which
process it is and waits there. So a test kills the very process that reads or writes, at a moment
that it knows, and later attempts run through.
"""

import os
import signal
import socket
import sys
from pathlib import Path

import pyspark.cloudpickle
from pyspark import TaskContext

from sow.spark.reader import SowReader
from sow.spark.source import SowDataSource
from sow.spark.stream import SowStreamReader
from sow.spark.writer import SowStreamWriter, SowWriter

WAIT_S = 300.0
"""Spark begins a task in seconds, and in minutes where others keep all cores busy."""
# Executors do not have the tests on their path.
pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Gate:
    """Where a task stops."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(WAIT_S)
        self.port = self._listener.getsockname()[1]

    def arrived(self):
        """Wait for a task: its process, and the connection that it waits on."""
        task, _ = self._listener.accept()
        task.settimeout(WAIT_S)
        return int(task.makefile().readline()), task

    def kill(self, of=lambda pid: pid):
        """Kill the task's process, or the one that `of` names for it, and see that it is gone."""
        pid, task = self.arrived()
        with task:
            os.kill(of(pid), signal.SIGKILL)
            assert task.recv(1) == b""
        self.close()

    def close(self):
        """Nobody stops any more, and nobody is waited for."""
        if self._listener.fileno() >= 0:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()


def forget_last_batch(checkpoint, files=None):
    """Leave a checkpoint as a driver does that dies before Spark has noted its last batch, and a
    sink of `files` as before its commit."""
    commits = checkpoint / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    for notes in (commits, *([] if files is None else [files / "_spark_metadata"])):
        for file in (notes / f"{last}", notes / f".{last}.crc"):
            file.unlink(missing_ok=True)


def executor_of(worker):
    """The JVM that runs a Python worker: its parent is the daemon of workers, next is the JVM."""
    return _parent(_parent(worker))


def _parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def stop(port, batches, after):
    """The same batches; the first task stops when it has dealt with so many of them."""
    context = TaskContext.get()
    stops = context.partitionId() == 0 and context.attemptNumber() == 0
    for count, batch in enumerate(batches, 1):
        yield batch
        if stops and count == after:
            _wait(port)


def _wait(port):
    try:
        gate = socket.create_connection(("127.0.0.1", port))
    except ConnectionRefusedError:
        return  # a batch after that of the kill
    with gate:
        gate.sendall(f"{os.getpid()}\n".encode())
        gate.recv(1)


class _Reads:
    def read(self, partition):
        return stop(self.gate, super().read(partition), after=1)


class _Writes:
    def write(self, iterator):
        # The second batch makes the first one be sent, if both do not fit in one request.
        return super().write(stop(self.gate, iterator, after=2))


class _Reader(_Reads, SowReader):
    pass


class _StreamReader(_Reads, SowStreamReader):
    pass


class _Writer(_Writes, SowWriter):
    pass


class _StreamWriter(_Writes, SowStreamWriter):
    pass


class Stopping(SowDataSource):
    """Takes the option `gate`, a port, beside those of `sow`."""

    @classmethod
    def name(cls):
        return "stopping"

    def __init__(self, options):
        options = dict(options)
        self._gate = int(options.pop("gate"))
        super().__init__(options)

    def _stopping(self, kind, plain):
        found = kind.__new__(kind)
        vars(found).update(vars(plain), gate=self._gate)
        return found

    def reader(self, schema):
        return self._stopping(_Reader, super().reader(schema))

    def streamReader(self, schema):  # noqa: N802 (the name is Spark's)
        return self._stopping(_StreamReader, super().streamReader(schema))

    def writer(self, schema, overwrite):
        return self._stopping(_Writer, super().writer(schema, overwrite))

    def streamWriter(self, schema, overwrite):  # noqa: N802
        return self._stopping(_StreamWriter, super().streamWriter(schema, overwrite))
