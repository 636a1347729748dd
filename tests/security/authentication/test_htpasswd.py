"""Names and passwords as htpasswd keeps them."""

import bcrypt
import pytest

from sow.errors import ConfigError
from sow.security.authentication import htpasswd
from sow.security.authentication.htpasswd import Users, groups_file, hashed, matches, read_hashes

ANNS = "$2b$04$wieBr9bn1sZFBPKWyNIdhewQxVMn6.wUJu0QgckKG3PouPzrbRwcC"
APACHES = ANNS.replace("$2b$", "$2y$")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "users.htpasswd"


@pytest.mark.parametrize(
    "kept", [ANNS, APACHES, hashed("s3cret")], ids=["bcrypt", "htpasswd", "argon2"]
)
def test_a_password_is_the_one_that_was_hashed(kept):
    assert matches(kept, "s3cret")
    for other in ("", "s3cres", "s3cret ", "S3CRET", "s3cret\0", "\0", "\ud800", "x" * 10_000):
        assert not matches(kept, other)


def test_bcrypt_cuts_a_long_password_where_htpasswd_does():
    kept = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()
    assert matches(kept, "x" * 80)


def test_users_have_their_groups(file):
    file.write_text(f"# desk\nann:{ANNS}\nbob:{APACHES}\n")
    file.with_suffix(".groups").write_text("desk: ann bob\nrisk: ann\ndesk: eve\n")
    users = Users.read(str(file))
    assert users.groups("ann") == {"desk", "risk"}
    assert users.groups("bob") == users.groups("eve") == {"desk"}
    assert users.groups("nobody") == frozenset()
    assert users.is_password("ann", "s3cret")
    assert not users.is_password("ann", "other")


def test_there_may_be_no_groups(file):
    file.write_text(f"ann:{ANNS}\n")
    assert Users.read(str(file)).groups("ann") == frozenset()


def test_who_is_not_there_is_hashed_as_well(file, monkeypatch):
    file.write_text(f"ann:{ANNS}\n")
    users = Users.read(str(file))
    looked_at = []
    monkeypatch.setattr(htpasswd, "matches", lambda kept, _: looked_at.append(kept) or True)
    assert not users.is_password("nobody", "s3cret")
    assert looked_at == [ANNS]
    file.write_text("")
    assert not Users.read(str(file)).is_password("nobody", "")
    assert len(looked_at) == 2


@pytest.mark.parametrize(
    ("name", "place"),
    [("a/users.htpasswd", "a/users.groups"), ("a.b/users", "a.b/users.groups")],
)
def test_groups_stand_beside(name, place):
    assert groups_file(name) == place


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ann", "line 1 .* is not NAME:HASH"),
        (f"\nan n:{ANNS}", "line 2 .* is not NAME:HASH"),
        (f"a,b:{ANNS}", "line 1 .* is not NAME:HASH"),
        (f"ann:{ANNS}\nann:{ANNS}", "line 2 .* names ann for a second time"),
        ("ann:$apr1$x$y", "neither bcrypt nor argon2; create it again with `sow user add ann`"),
        ("ann:s3cret", "neither bcrypt nor argon2"),
        ("ann:" + ANNS.replace("$04$", "$31$"), "takes too long to check"),
        ("ann:$argon2id$v=19$m=9999999,t=2,p=1$c29tZXNhbHQ$aGFzaGhhc2g", "takes too long"),
        ("ann:$argon2id$rubbish", "is no hash of argon2"),
    ],
)
def test_a_line_that_is_wrong_is_named(file, text, said):
    file.write_text(text)
    with pytest.raises(ConfigError, match=said) as refused:
        read_hashes(str(file))
    assert "s3cret" not in refused.value.detail


def test_a_group_that_is_wrong_is_named(file):
    file.write_text("")
    file.with_suffix(".groups").write_text("desk ann")
    with pytest.raises(ConfigError, match=r"line 1 of .*users\.groups is not `GROUP: NAME NAME`"):
        Users.read(str(file))


def test_every_name_takes_the_same_work_whatever_its_hash(monkeypatch):
    def weak(password, cost):
        return bcrypt.hashpw(password, bcrypt.gensalt(cost)).decode()

    hashes = {
        "ann": hashed("s3cret"),
        "ben": weak(b"s3cret", 4),
        "carl": weak(b"other", 5),
        "dora": weak(b"s3cret", 4).replace("$2b$", "$2y$"),
    }
    users, requested = Users(hashes, {}), []
    judge = htpasswd.matches

    def noted(kept, password):
        requested.append(htpasswd._kind_of(kept))
        return judge(kept, password)

    monkeypatch.setattr(htpasswd, "matches", noted)
    work = []
    for name in (*hashes, "nobody"):
        assert users.is_password(name, "s3cret") is (name not in ("carl", "nobody"))
        work.append(sorted(requested))
        requested.clear()
    assert work == [work[0]] * len(work)
    assert len(work[0]) == 3
