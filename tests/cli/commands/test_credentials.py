"""Files of users and tokens: found by the configuration, and edited."""

import json
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.security.authentication.htpasswd import Users
from sow.security.authentication.tokens import Tokens, sum_of, time_us

ASKING = """<Authentication><Tokens><File>${WHERE}/tokens</File></Tokens></Authentication>
<Role><Name>all</Name><Member>*</Member><Allow><Admin/></Allow></Role>"""


@pytest.fixture
def config(tmp_path):
    def written(security):
        (tmp_path / "config.xml").write_text(
            f"<SOWConfig><Name>s</Name><Security>{security}</Security></SOWConfig>"
        )
        return str(tmp_path / "config.xml")

    return written


def run(*words):
    return CliRunner().invoke(main, words)


def test_the_configuration_names_the_file(config, tmp_path):
    (tmp_path / "secret").mkdir()
    path = config(ASKING)
    made = run("token", "create", "feed", "--config", path, "--set", "WHERE=secret")
    assert made.exit_code == 0, made.output
    assert (tmp_path / "secret" / "tokens").read_text().startswith("feed ")


def test_a_configuration_without_the_element_says_what_to_write(config):
    found = run("user", "list", "--config", config(""))
    assert found.exit_code == 1
    assert "add <Users><File>…</File></Users> to Authentication" in found.stderr


def test_check_warns_of_files_without_which_the_server_would_not_start(tmp_path):
    config = tmp_path / "config.xml"
    config.write_text(
        "<SOWConfig><Name>n</Name><Security>"
        "<TLS><Certificate>c.pem</Certificate><PrivateKey>k.pem</PrivateKey></TLS>"
        "<Authentication><Users><File>users</File></Users><Tokens><File>tokens</File></Tokens>"
        "<JWT><Issuer>i</Issuer><Audience>a</Audience><Keys>keys.json</Keys></JWT>"
        "</Authentication><Role><Name>all</Name><Member>*</Member>"
        "<Allow><Topic>.*</Topic><Read/></Allow></Role></Security><SOW>"
        "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
        "</SOW></SOWConfig>"
    )
    result = CliRunner().invoke(main, ["check", str(config)])
    assert result.exit_code == 0, "where roles are checked the secrets need not be"
    elements = [line.split(": ")[1] for line in result.stdout.splitlines()[:-1]]
    assert elements == ["TLS", "Users", "Tokens", "JWT"]
    assert "`sow user add NAME` makes it" in result.stdout
    assert "`sow token create NAME` makes it" in result.stdout
    (tmp_path / "tokens").write_text("nonsense\n")
    assert "line 1 of" in CliRunner().invoke(main, ["check", str(config)]).stdout


@pytest.fixture
def users_file(tmp_path):
    return tmp_path / "users.htpasswd"


@pytest.fixture
def user(users_file):
    def run(*words, **more):
        return CliRunner().invoke(main, ["user", *words, "--file", str(users_file)], **more)

    return run


def test_a_user_is_added_changed_listed_and_removed(user, users_file):
    added = user("add", "ann", "--group", "desk", "--group", "risk", input="s3cret\n")
    assert (added.exit_code, added.stderr) == (0, f"{users_file}: ann was added\n")
    assert user("add", "bob", "--group", "desk", input="other\r\n").exit_code == 0
    assert "ann has another password" in user("add", "ann", input="n3w\n").stderr
    users = Users.read(str(users_file))
    assert users.is_password("ann", "n3w")
    assert users.is_password("bob", "other")
    assert not users.is_password("ann", "s3cret")
    assert user("list").stdout == "ann desk,risk\nbob desk\n"
    user("add", "ann", "--group", "risk", input="n3w\n")
    assert json.loads(user("list", "--json").stdout)[0] == {"name": "ann", "groups": ["risk"]}
    assert user("remove", "ann").exit_code == 0
    assert user("list").stdout == "bob desk\n"
    assert users_file.with_suffix(".groups").read_text() == "desk: bob\n"
    assert users_file.stat().st_mode & 0o777 == 0o600


def test_what_others_wrote_stays(user, users_file):
    user("add", "ann", input="a\n")
    users_file.write_text("# of the desk\n" + users_file.read_text() + "\n")
    user("add", "bob", input="b\n")
    assert users_file.read_text().startswith("# of the desk\nann:$argon2id$")
    assert [line[:4] for line in users_file.read_text().splitlines()[1:]] == ["ann:", "", "bob:"]


@pytest.mark.parametrize(
    ("words", "typed", "said"),
    [
        (("add", "a:b"), "x\n", "'a:b' cannot be a name here"),
        (("add", "ann", "--group", "a b"), "x\n", "'a b' cannot be a name here"),
        (("add", "ann"), "\n", "the password is empty"),
        (("add", "ann"), "", "the password is empty"),
        (("remove", "ann"), "", "users.htpasswd has no ann"),
    ],
)
def test_what_no_user_can_be_is_refused(user, users_file, words, typed, said):
    users_file.write_text("")
    found = user(*words, input=typed)
    assert (found.exit_code, said in found.stderr) == (1, True)
    assert users_file.read_text() == ""


def test_a_file_that_is_wrong_is_left_alone(user, users_file):
    users_file.write_text("ann:plain\n")
    found = user("add", "bob", input="x\n")
    assert (found.exit_code, "line 1 of" in found.stderr) == (1, True)
    assert users_file.read_text() == "ann:plain\n"


@pytest.fixture
def tokens_file(tmp_path):
    return tmp_path / "tokens"


@pytest.fixture
def token(tokens_file):
    def run(*words):
        return CliRunner().invoke(main, ["token", *words, "--file", str(tokens_file)])

    return run


def test_a_token_is_made_and_shown_once(token, tokens_file):
    made = token("create", "feed", "--group", "desk", "--group", "risk")
    shown = made.stdout.strip()
    assert made.exit_code == 0
    assert shown not in tokens_file.read_text() + made.stderr
    assert tokens_file.read_text() == f"feed {sum_of(shown)} desk,risk\n"
    assert Tokens.read(str(tokens_file)).user(shown).groups == {"desk", "risk"}
    assert tokens_file.stat().st_mode & 0o777 == 0o600
    assert token("list").stdout == "feed desk,risk\n"


def test_a_token_ends_after_a_while_or_at_a_time(token):
    token("create", "a", "--expires", "2027-01-31T00:00:00Z")
    token("create", "b", "--expires", "90d")
    first, second = json.loads(token("list", "--json").stdout)
    assert first == {"name": "a", "groups": [], "expires": "2027-01-31T00:00:00Z"}
    days = (time_us(second["expires"]) / 1e6 - datetime.now(UTC).timestamp()) / 86_400
    assert 89 < days <= 90


def test_all_tokens_of_a_name_are_taken_out(token, tokens_file):
    tokens_file.write_text("# programs\n")
    for name in ("feed", "desk", "feed"):
        token("create", name)
    assert token("remove", "feed").stderr == f"{tokens_file}: 2 of feed removed\n"
    assert token("list").stdout == "desk\n"
    assert tokens_file.read_text().startswith("# programs\ndesk ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create", "a b"), "'a b' cannot be a name here"),
        (("create", "a", "--group", "b,c"), "'b,c' cannot be a name here"),
        (("create", "a", "--group", "2T"), "2T is not a time in UTC"),
        (("create", "a", "--expires", "soon"), "soon is neither a duration such as 90d nor a time"),
        (("create", "a", "--expires", "2027-99-31T00:00:00Z"), "no day or time that there is"),
        (("remove", "a"), "tokens has no a"),
    ],
)
def test_what_no_token_can_be_is_refused(token, tokens_file, words, said):
    tokens_file.write_text("")
    found = token(*words)
    assert (found.exit_code, found.stdout) == (1, "")
    assert said in found.stderr
    assert tokens_file.read_text() == ""
