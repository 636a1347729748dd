"""The file of contexts: what it holds, whom its credentials are for, and what is wrong with one."""

import os
import stat
import tomllib

import pytest

from sow.cli import contexts
from sow.cli.contexts import Context, Contexts
from sow.errors import ClientError

PROD = Context("https://sow.example.com", "ann", 'printf "a\\tb" | cut -f1 # "ü"')
DEV = Context("http://a:8080,http://b:8080")


def test_what_is_written_is_read_by_its_owner_alone(tmp_path):
    file = tmp_path / "new" / "contexts.toml"
    assert contexts.read(file) == contexts.NONE
    before = os.umask(0)
    try:
        contexts.write(file, Contexts("prod", {"prod": PROD, "dev": DEV}))
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert contexts.read(file) == Contexts("prod", {"prod": PROD, "dev": DEV})
    assert contexts.read(file).chosen == PROD
    assert tomllib.loads(file.read_text())["contexts"]["dev"] == {"address": DEV.address}
    contexts.write(file, contexts.NONE)
    assert (contexts.read(file), [*file.parent.iterdir()]) == (contexts.NONE, [file])


def test_a_file_that_cannot_be_replaced_stays_as_it_is(tmp_path, monkeypatch):
    file = tmp_path / "contexts.toml"
    contexts.write(file, Contexts("dev", {"dev": DEV}))
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        contexts.write(file, contexts.NONE)
    assert contexts.read(file).current == "dev"
    assert [*tmp_path.iterdir()] == [file]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("current =", "is not TOML"),
        ("\xff", "is not TOML"),
        ("token = 'x'", "nothing else"),
        ("contexts = 3", "nothing else"),
        ("current = 'prod'", "no context there"),
        ("contexts.prod = 3", "has no address"),
        ("[contexts.prod]\nuser = 'ann'", "has no address"),
        ("[contexts.prod]\naddress = 8080", "not 'address'"),
        ("[contexts.prod]\naddress = 'a'\npassword = 'p'", "not 'password'"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, text, said):
    file = tmp_path / "contexts.toml"
    file.write_text(text, encoding="latin-1")
    with pytest.raises(ClientError, match=said) as error:
        contexts.read(file)
    assert str(file) in error.value.detail


def test_a_file_that_others_may_write_is_refused(tmp_path):
    file = tmp_path / "contexts.toml"
    file.touch(mode=0o600)
    file.chmod(0o620)
    with pytest.raises(ClientError, match="chmod 600"):
        contexts.read(file)


@pytest.mark.parametrize(
    ("url", "is_own"),
    [
        ("https://sow.example.com:443/", True),
        ("https://SOW.example.com", True),
        ("https://sow.example.com,https://sow.example.com", True),
        ("http://sow.example.com", False),
        ("https://sow.example.com:8443", False),
        ("https://sow.example.com/other", False),
        ("https://sow.example.com@evil", False),
        ("https://sow.example.com.evil", False),
        ("https://sow.example.com,https://evil", False),
        ("https://sow.example.com:x", False),
        ("sow.example.com", False),
    ],
)
def test_an_address_is_its_own_in_any_spelling(url, is_own):
    assert PROD.has(url) is is_own


def test_one_of_several_addresses_is_its_own():
    assert DEV.has("http://b:8080")
    assert DEV.has("a:8080")
    assert not DEV.has("http://a:8080,http://c:8080")


@pytest.mark.parametrize(("name", "context"), [("", DEV), ("a b", DEV), ("a", Context("x\x7f"))])
def test_what_the_file_cannot_hold_is_refused(name, context):
    with pytest.raises(ClientError, match=r"is no name|control characters"):
        contexts.checked(name, context)


def test_a_token_is_the_one_line_that_the_command_writes(capfd):
    assert contexts.token_of("prod", "echo t0ken; echo a notice >&2") == "t0ken"
    assert "a notice" in capfd.readouterr().err
    for command, said in [
        ("exit 3", "exit code 3: 'exit 3'"),
        ("true", "did not write one line"),
        ("echo one; echo two", "did not write one line"),
    ]:
        with pytest.raises(ClientError, match=said):
            contexts.token_of("prod", command)
