"""Credentials authenticate their owner or no one; a server that accepts more is found."""

import base64
import random
import re

import orjson
import pytest
from joserfc import jwk, jws

from sow.errors import Unauthenticated
from sow.security.authentication import jwt
from sow.security.authentication.jwt import SignedTokens
from sow.security.authentication.tokens import Tokens
from tests.fuzz.__main__ import knocks
from tests.fuzz.credentials import SECRET, CredentialsDoor
from tests.fuzz.running import knocked


def test_nobody_comes_in_by_what_is_nearly_right():
    found = knocked("credentials", 4_000)
    assert 0 < found["let_in"] < found["inputs"]


def checks_no_signature(patch):
    patch.setattr(jws, "validate_compact", lambda *_: True)


def believes_that_it_is_not_signed(patch):
    claims = SignedTokens._claims

    async def believing(self, token):
        try:
            return await claims(self, token)
        except Unauthenticated:
            _, said, mark = token.split(".")
            if mark:
                raise
            return orjson.loads(base64.urlsafe_b64decode(said + "=="))

    patch.setattr(SignedTokens, "_claims", believing)
    patch.setattr(jwt, "COMPACT", re.compile(r"[^.]+\.[^.]+\.[^.]*"))


def takes_any_audience(patch):
    patch.setattr(SignedTokens, "_is_audience", lambda *_: True)


def takes_tokens_without_an_end(patch):
    patch.setattr(jwt, "_number", lambda given: 9e9 if given is None else given)


def takes_what_has_ended(patch):
    patch.setattr(jwt, "END_OF_TIME_S", 1e400)
    patch.setattr(jwt, "_number", lambda given: 9e9 if given else 0)


def finds_tokens_by_how_they_begin(patch):
    find = Tokens.user
    patch.setattr(
        Tokens, "user", lambda self, shown: find(self, SECRET if shown[:9] == SECRET[:9] else shown)
    )


def believes_the_key_in_the_token(patch):
    validate = jws.validate_compact

    def believing(found, key, *more):
        own = found.headers().get("jwk")
        return validate(found, jwk.import_key(own) if own else key, *more)

    patch.setattr(jws, "validate_compact", believing)


def knock_often():
    for block in range(5):
        knocks(CredentialsDoor(), random.Random(block))


BUGS = (
    checks_no_signature,
    believes_that_it_is_not_signed,
    takes_any_audience,
    takes_tokens_without_an_end,
    takes_what_has_ended,
    finds_tokens_by_how_they_begin,
    believes_the_key_in_the_token,
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_door_that_believes_too_much_is_found(bug, monkeypatch):
    bug(monkeypatch)
    with pytest.raises(AssertionError, match="is not"):
        knock_often()
