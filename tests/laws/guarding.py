"""Sessions with rights, for tests of what a user may see: no doors, no passwords."""

from sow.core.cooperative import run_to_completion
from sow.core.security_definitions import Allow, Authentication, Role, Security, User
from sow.security.authorization import RoleSet
from tests.laws.harness import World

A, B = {"id": 1, "desk": "a", "px": 1}, {"id": 2, "desk": "b", "px": 2}
"""Records of two desks."""


def two_desks(*topics):
    """A world with a record of each of two desks."""
    world = World(*topics)
    world.publish("orders", A, B)
    return world


def rights(*allows, name="ann", **claims):
    """The rights of one user, by what his role allows."""
    security = Security(
        authentication=Authentication(tokens_file="tokens"),
        roles=(Role("role", ("*",), allows),),
    )
    return RoleSet(security).rights(User(name, claims=claims))


def reading(topic="orders", **more):
    return Allow(topic=topic, read=True, **more)


def desk(*names, topic="orders"):
    """May read the rows of these desks."""
    listed = ", ".join(f"'{name}'" for name in names)
    return rights(reading(topic, filter=f"/desk IN ({listed}, '')" if names else "1 = 0"))


def guarded(world, given):
    """A client whose session has these rights."""
    client = world.client()
    client.session.entitle(given)
    return client


def regrant(client, given):
    """Change the rights of a session; returns the lines that it is sent."""
    run_to_completion(client.world.executor.reguard(client.session, given))
    client.world.settle()
    return client.lines()
