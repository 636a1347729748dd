"""The bugs that are planted (`planted`), a file for each part of the server in which they are.

With a new law comes a bug that breaks it.
"""

from tests.simulation.mutations.conflation import CONFLATION
from tests.simulation.mutations.delivery import DELIVERY
from tests.simulation.mutations.engine import ENGINE
from tests.simulation.mutations.nodes import NODES
from tests.simulation.mutations.requests import REQUESTS
from tests.simulation.mutations.store import STORE
from tests.simulation.mutations.topic import TOPIC
from tests.simulation.mutations.views import VIEWS
from tests.simulation.mutations.windows import WINDOWS

MUTATIONS = (
    *CONFLATION,
    *STORE,
    *TOPIC,
    *VIEWS,
    *DELIVERY,
    *WINDOWS,
    *ENGINE,
    *REQUESTS,
    *NODES,
)
