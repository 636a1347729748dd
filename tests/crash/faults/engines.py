"""The engines of the catalogue: clusters of three servers on this machine, and one store."""

import secrets

from sow.shared_log.adapters.nats import NatsLog, NatsPlace
from sow.shared_log.adapters.postgres import PostgresLog, PostgresPlace
from sow.shared_log.adapters.s3 import S3Log, S3Place
from tests.shared_log.adapters.nats_cluster import NatsCluster
from tests.shared_log.adapters.postgres_cluster import PostgresCluster
from tests.shared_log.adapters.s3_server import S3Server, url

ANSWER_S = 20.0
LEASE_S = 0.6
OF_NODES = ("node killed", "silent partition", "node paused", "disk of a node full")
OF_ENGINE = (
    "engine's leader killed",
    "silent partition in the engine",
    "all of the engine killed",
)
KINDS = (*OF_NODES, *OF_ENGINE)


class NatsEngine:
    """JetStream with three replicas that wait for their disks, or one."""

    name = "nats"
    lease_s = LEASE_S
    kinds = KINDS

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
    lease_s = LEASE_S
    kinds = KINDS

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


class S3Engine:
    """One server of moto's, which has everything in memory: only nodes fail. It does one request
    after the other, so the lease is longer."""

    name = "s3"
    lease_s = 2.0
    kinds = OF_NODES

    def __init__(self):
        self.cluster = S3Server()
        self._name = secrets.token_hex(4)

    def elements(self, ports):
        place = url(*ports, self._name).replace("&", "&amp;")
        return f"<Engine>s3</Engine><Url>{place}</Url>"

    def client(self):
        return S3Log(S3Place(url=url(self.cluster.port, self._name), unsafe=True), ANSWER_S)

    def close(self):
        self.cluster.close()


ENGINES = {one.name: one for one in (NatsEngine, PostgresEngine, S3Engine)}
