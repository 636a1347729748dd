"""Static tokens, of which only the sums are kept."""

import pytest

from sow.core.security_definitions import User
from sow.errors import ConfigError
from sow.security.authentication.tokens import (
    TokenLine,
    Tokens,
    new_token,
    read_lines,
    sum_of,
    time_us,
)

SUM = sum_of("t0ken")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "tokens"


@pytest.mark.parametrize(
    ("rest", "groups", "expires"),
    [
        ("", (), ""),
        (" desk,risk", ("desk", "risk"), ""),
        (" 2027-01-31T00:00:00Z", (), "2027-01-31T00:00:00Z"),
        (" desk 2027-01-31T00:00:00.5Z", ("desk",), "2027-01-31T00:00:00.5Z"),
        (" 2nd,desk", ("2nd", "desk"), ""),
    ],
)
def test_a_line_is_read_and_written(file, rest, groups, expires):
    file.write_text(f"feed {SUM.upper()}{rest}\n")
    (line,) = read_lines(str(file))
    assert line == TokenLine("feed", SUM, groups, expires)
    assert str(line) == f"feed {SUM}{rest}"
    assert Tokens.read(str(file)).user("t0ken").groups == set(groups)


def test_a_token_is_whoever_its_line_names(file):
    file.write_text(f"feed {SUM} desk 1970-01-02T00:00:00Z\n")
    tokens = Tokens.read(str(file))
    assert tokens.user("t0ken") == User("feed", frozenset({"desk"}), expires_us=86_400_000_000)
    for other in ("", "t0kem", SUM, "\ud800"):
        assert tokens.user(other) is None


def test_times_are_in_utc_and_exact():
    assert time_us("1970-01-01T00:00:01.000001Z") == 1_000_001
    assert time_us("2027-01-31T00:00:00Z") == 1_801_353_600_000_000


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("feed", "write NAME SHA-256"),
        ("feed t0ken", "never the token itself"),
        (f"a:b {SUM}", "a name has no space"),
        (f"feed {SUM} desk risk", "risk is not a time in UTC"),
        (f"feed {SUM} 2027-01-31T00:00:00", "is not a time in UTC"),
        (f"feed {SUM} 2027-01-31", "is not a time in UTC"),
        (f"feed {SUM} 2027-0", "is not a time in UTC"),
        (f"feed {SUM} 2027-02-31T00:00:00Z", "no day or time that there is"),
        (f"feed {SUM} 2027-01-31T00:00:00Z desk", "desk stands after the end"),
        (f"a {SUM}\nb {SUM}", "line 2 .* has the token of a for a second time"),
    ],
)
def test_a_line_that_is_wrong_is_named(file, line, said):
    file.write_text(line)
    with pytest.raises(ConfigError, match=said) as refused:
        read_lines(str(file))
    assert "t0ken" not in refused.value.detail


def test_no_two_new_tokens_are_alike():
    made = {new_token() for _ in range(100)}
    assert len(made) == 100
    assert all(len(token) > 40 for token in made)
