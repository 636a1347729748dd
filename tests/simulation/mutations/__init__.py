"""The bugs that are planted (`planted`), a file for each part of the server in which they are.

With a new law comes a bug that breaks it.
"""

from tests.simulation.mutations.conflation import CONFLATION
from tests.simulation.mutations.delivery import DELIVERY
from tests.simulation.mutations.engine import ENGINE
from tests.simulation.mutations.nodes import NODES
from tests.simulation.mutations.requests import REQUESTS
from tests.simulation.mutations.shared_log import SHARED_LOG
from tests.simulation.mutations.store import STORE
from tests.simulation.mutations.topic import TOPIC
from tests.simulation.mutations.views import VIEWS
from tests.simulation.mutations.windows import WINDOWS

PARTS = {
    "conflation": CONFLATION,
    "store": STORE,
    "topic": TOPIC,
    "views": VIEWS,
    "delivery": DELIVERY,
    "windows": WINDOWS,
    "engine": ENGINE,
    "requests": REQUESTS,
    "nodes": NODES,
    "shared_log": SHARED_LOG,
}
MUTATIONS = tuple(mutation for part in PARTS.values() for mutation in part)
