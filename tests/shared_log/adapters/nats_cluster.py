"""A real NATS cluster: three servers, or one, whose every append waits for the disk."""

import json
import urllib.request
from contextlib import suppress

from tests.needs import nats_server
from tests.ports import free_ports
from tests.shared_log.adapters.processes import Processes, until
from tests.shared_log.adapters.relay import Links

CONFIGURATION = """
server_name: {name}
listen: 127.0.0.1:{port}
http: 127.0.0.1:{monitor}
jetstream {{ store_dir: "{directory}/{name}", {settings} }}
{cluster}
"""
CLUSTER = """
cluster {{ name: sow, listen: 127.0.0.1:{route}, no_advertise: true, routes: [{routes}]{more} }}
"""
NOWHERE = ', advertise: "127.0.0.1:1"'
"""Servers tell each other where others are: where there are links, not past these."""
SAFE = "sync_interval: always, max_mem: 64MB, max_file: 2GB"


class NatsCluster:
    """Servers `n1` … on ports of their own; `settings` are those of JetStream. If it is `linked`,
    its `links` are between them."""

    def __init__(self, n=3, settings=SAFE, linked=False):
        self.names = [f"n{number + 1}" for number in range(n)]
        ports = free_ports(3 * n)
        self.ports = dict(zip(self.names, ports[:n], strict=True))
        self.monitors = dict(zip(self.names, ports[n : 2 * n], strict=True))
        routes = dict(zip(self.names, ports[2 * n :], strict=True))
        self.links = Links(routes) if linked else None
        self.processes = Processes("nats")
        for name in self.names:
            others = [routes[one] for one in self.names if one != name]
            others = self.links.ports(name) if linked else others
            cluster = CLUSTER.format(
                route=routes[name],
                routes=", ".join(f"nats://127.0.0.1:{port}" for port in others),
                more=NOWHERE if linked else "",
            )
            (self.processes.directory / f"{name}.conf").write_text(
                CONFIGURATION.format(
                    name=name,
                    port=self.ports[name],
                    monitor=self.monitors[name],
                    directory=self.processes.directory,
                    settings=settings,
                    cluster=cluster if n > 1 else "",
                )
            )
        try:
            for name in self.names:
                self.start(name)
            self.wait()
        except BaseException:
            self.close()
            raise

    @property
    def servers(self):
        return [f"nats://127.0.0.1:{port}" for port in self.ports.values()]

    @property
    def monitor_urls(self):
        return [f"http://127.0.0.1:{port}" for port in self.monitors.values()]

    def start(self, name):
        self.processes.start(name, nats_server(), "-c", f"{name}.conf")

    def wait(self, names=()):
        """Until JetStream answers: the servers have elected a leader, and caught up with it."""
        names = names or self.names
        for name in names:
            until(lambda name=name: self._is_healthy(name), f"{name} is healthy")
        if len(names) > 1:
            until(lambda: self._is_known(names), "the servers know of each other")

    def kill(self, name):
        self.processes.kill(name)

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

    def monitored(self, name, path):
        """What the monitoring port of a server says."""
        url = f"http://127.0.0.1:{self.monitors[name]}/{path}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)

    def leader(self, stream):
        """Which server leads a stream."""
        said = self.monitored(self.names[0], "jsz?streams=true")
        for account in said.get("account_details", ()):
            for one in account.get("stream_detail", ()):
                if one["name"] == stream:
                    return one["cluster"]["leader"]
        return None

    def _is_healthy(self, name):
        assert self.processes.is_running(name), self.processes.said(name)
        with suppress(OSError):
            meta = self.monitored(name, "jsz").get("meta_cluster")
            is_elected = len(self.names) == 1 or bool(meta and meta.get("leader"))
            return is_elected and self.monitored(name, "healthz")["status"] == "ok"
        return False

    def _is_known(self, names):
        """Whether the leader of all sees each: a stream may be placed on it."""
        with suppress(OSError):
            leader = self.monitored(names[0], "jsz")["meta_cluster"].get("leader")
            meta = self.monitored(leader, "jsz")["meta_cluster"] if leader else {}
            there = {one["name"] for one in meta.get("replicas", ()) if not one.get("offline")}
            return bool(leader) and there >= set(names) - {leader}
        return False

    def close(self):
        self.processes.close()
        if self.links is not None:
            self.links.close()
