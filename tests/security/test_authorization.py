"""What a user may do, by his roles."""

import pytest

from sow.core.security_definitions import Allow, Authentication, Role, Security, User
from sow.errors import NotEntitled, Unauthenticated, UnknownTopic
from sow.security import authorization as module
from sow.security import row_level_security
from sow.security.authorization import EVERYTHING, TOPICS_KEPT, USERS_KEPT, Permissions, RoleSet

DESK = Role("desk", ("group:desk",), (Allow("orders.*", read=True), Allow("orders", write=True)))
OPS = Role("ops", ("user:olga",), (Allow(admin=True), Allow("/sow/.*", read=True)))
ALL = Role("all", ("*",), (Allow(".*", delete=True),))
AGENTS = Role("agents", ("user:agent",), (Allow(impersonate=True),))
ANN, OLGA = User("ann", frozenset({"desk"})), User("olga")


def rights(user, *roles):
    return RoleSet(Security(authentication=Authentication(), roles=roles)).rights(user)


def test_where_nobody_is_requested_everybody_may_everything():
    found = RoleSet(Security()).rights(None)
    assert found is EVERYTHING
    found.check("admin")
    assert found.may("delete", "orders")
    assert found.sees("/sow/commits")
    assert (found.reads, found.owner, found.expires_us) == ("", (), None)


def test_a_verb_is_allowed_for_topics_whose_whole_name_matches():
    found = rights(ANN, DESK)
    assert found.may("read", "orders")
    assert found.may("read", "orders-C")
    assert found.may("write", "orders")
    assert not found.may("write", "orders-C")
    assert not found.may("read", "my-orders")
    assert not found.may("read", "orders\n")


def test_allows_of_several_roles_are_united_and_everybody_is_a_member_of_the_star():
    found = rights(ANN, DESK, ALL)
    assert found.of("orders") == {"read", "write", "delete"}
    assert found.of("other") == {"delete"}
    assert rights(OLGA, DESK, ALL).of("orders") == {"delete"}


def test_the_servers_own_topics_are_meant_by_who_says_so():
    assert not rights(ANN, ALL).sees("/sow/commits")
    assert rights(OLGA, OPS).may("read", "/sow/commits")


def test_what_is_refused_depends_on_the_name_and_never_on_what_there_is():
    found = rights(ANN, DESK)
    for refused, demand, topic in (
        (NotEntitled, "write", "orders-C"),
        (NotEntitled, "admin", ""),
        (UnknownTopic, "read", "secret"),
        (UnknownTopic, "see", "secret"),
    ):
        with pytest.raises(refused):
            found.check(demand, topic)
    found.check("see", "orders-C")
    found.check("logon")
    found.check("nothing")


@pytest.mark.parametrize("demand", ["logon", "see", "read", "write", "delete", "admin"])
def test_who_has_not_said_who_he_is_may_nothing(demand):
    with pytest.raises(Unauthenticated):
        Permissions(None).check(demand, "orders")
    Permissions(None).check("nothing", "orders")


def test_who_acts_for_another_has_his_rights_and_owns_what_is_theirs_together():
    agent = User("agent", expires_us=7)
    given = RoleSet(Security(authentication=Authentication(), roles=(DESK, AGENTS)))
    found = given.rights(ANN, agent)
    assert found.may("read", "orders")
    assert not found.may("impersonate")
    assert found.owner == ("ann", "agent") != given.rights(ANN).owner
    assert found.expires_us == 7


def test_rights_to_read_the_same_are_equal_by_what_they_read():
    other = User("ben", frozenset({"desk"}))
    assert rights(ANN, DESK).reads == rights(other, DESK, ALL).reads != rights(OLGA, OPS).reads


def test_of_very_many_names_not_all_are_kept():
    found = rights(ANN, DESK)
    for at in range(TOPICS_KEPT + 2):
        assert found.may("read", f"orders{at}")
    assert len(found._verbs) <= TOPICS_KEPT


def test_rights_are_made_once_for_who_comes_again():
    given = RoleSet(Security(authentication=Authentication(), roles=(DESK,)))
    found = given.rights(ANN)
    assert given.rights(User("ann", frozenset({"desk"}))) is found
    others = (User("ann"), User("ann", ANN.groups, {"desk": "a"}), User("ann", ANN.groups, {}, 7))
    assert not any(given.rights(other) is found for other in others)
    assert given.rights(ANN, OLGA) is not found
    for at in range(USERS_KEPT):
        assert given.rights(ANN) is found
        given.rights(User(f"user{at}"))
    assert len(given._kept) == USERS_KEPT


def test_who_may_nothing_and_who_may_everything_are_no_equals():
    assert EVERYTHING.text != rights(OLGA, DESK).text == ""


@pytest.mark.parametrize(
    ("allow", "everything"),
    [
        (Allow(".*", read=True), True),
        (Allow(".*", write=True, admin=True), False),
        (Allow("orders.*", read=True), False),
        (Allow(".*", read=True, filter="/desk = 'a'"), False),
        (Allow(".*", read=True, select=("-/px",)), False),
    ],
    ids=["all", "to write", "some", "rows", "fields"],
)
def test_everything_is_read_by_one_allow_that_says_so(allow, everything):
    assert EVERYTHING.reads_everything
    assert not rights(ANN).reads_everything
    assert rights(ANN, Role("one", ("*",), (allow,))).reads_everything == everything


def test_what_is_said_alike_of_many_topics_is_made_once_and_compiled_when_it_is_requested_for(
    monkeypatch,
):
    made, compiled = [], []
    make, compile_one = module.row_policy_of, row_level_security.compile_term
    monkeypatch.setattr(module, "row_policy_of", lambda *said: made.append(said) or make(*said))
    monkeypatch.setattr(
        row_level_security, "compile_term", lambda node: compiled.append(node) or compile_one(node)
    )
    allow = Allow("orders-.*", read=True, filter="/book = 'a'")
    roles = (Role("desk", ("*",), (allow,)),)
    role_set = RoleSet(Security(authentication=Authentication(), roles=roles))
    found = {role_set.rights(ANN).guard(f"orders-{at}") for at in range(100)}
    found |= {role_set.rights(OLGA).guard("orders-1")}
    assert len(found) == 1
    assert (len(made), len(compiled)) == (2, 0)
    assert all(one.rows.text == "/book = 'a'" for one in found)
    assert len(compiled) == 1
