"""The engines of the catalogue: clusters of three servers on this machine."""

import secrets

from sow.shared_log.adapters.nats import NatsLog, NatsPlace
from sow.shared_log.adapters.postgres import PostgresLog, PostgresPlace
from tests.shared_log.adapters.nats_cluster import NatsCluster
from tests.shared_log.adapters.postgres_cluster import PostgresCluster

ANSWER_S = 20.0


class NatsEngine:
    """JetStream with three replicas that wait for their disks, or one."""

    name = "nats"

    def __init__(self, servers=3):
        self.cluster = NatsCluster(servers, linked=True)
        self._stream = f"sow-{secrets.token_hex(4)}"
        self._down = ""

    def elements(self, ports):
        """The elements of `<Log>` for a node whose servers are at these ports."""
        servers = ",".join(f"nats://127.0.0.1:{port}" for port in ports)
        return (
            f"<Engine>nats</Engine><Servers>{servers}</Servers><Stream>{self._stream}</Stream>"
            f"<Monitor>{','.join(self.cluster.monitor_urls)}</Monitor>"
        )

    def client(self):
        """A client of the log beside the nodes."""
        servers = self.cluster.servers
        place = NatsPlace(servers=servers, stream=self._stream, unsafe=True)
        return NatsLog(place, ANSWER_S)

    def leader(self):
        return self.cluster.leader(self._stream) or self.cluster.names[0]

    def kill_leader(self):
        self._down = self.leader()
        self.cluster.kill(self._down)

    def mend(self):
        """The server that was killed is there again."""
        self.cluster.start(self._down)
        self.cluster.wait()

    def close(self):
        self.cluster.close()


class PostgresEngine:
    """One primary whose commits wait for one of two standbys. Another program has to promote one
    when it dies; here that is done at once."""

    name = "postgres"

    def __init__(self):
        self.cluster = PostgresCluster(linked=True)
        self._down = ""

    def elements(self, ports):
        dsn = self.cluster.dsn(*ports).replace("&", "&amp;")
        return f"<Engine>postgres</Engine><Dsn>{dsn}</Dsn>"

    def client(self):
        return PostgresLog(PostgresPlace(dsn=self.cluster.dsn(), unsafe=True), ANSWER_S)

    def leader(self):
        return self.cluster.primary

    def kill_leader(self):
        self._down = self.leader()
        self.cluster.kill(self._down)

    def mend(self):
        self.cluster.promote(self.cluster.newest_standby())
        self.cluster.rejoin(self._down)

    def close(self):
        self.cluster.close()


ENGINES = {one.name: one for one in (NatsEngine, PostgresEngine)}
