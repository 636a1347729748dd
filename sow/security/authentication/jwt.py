"""Signed tokens (JWT) of an external issuer: verified by its keys, and parsed.

A token names its own algorithm, which is not trusted: the key decides which algorithms are allowed.
It has to come from the issuer, be meant for the audience, and have an expiry; there is no leeway
for clocks.
"""

import math
import re
from collections.abc import Callable, Mapping

import orjson
from joserfc import jws
from joserfc.errors import JoseError

from sow.core.clock import SECOND_US
from sow.core.security_definitions import Jwt, User
from sow.errors import Unauthenticated
from sow.security.authentication.credentials import LONGEST
from sow.security.authentication.key_set import ALGORITHMS, FetchedKeys, FiledKeys

COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
LISTED = frozenset(one for of_kind in ALGORITHMS.values() for one in of_kind)
UNREADABLE = (JoseError, ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""Of a header that is JSON, and no object, or nested as deep as a token is long, too."""
END_OF_TIME_S = 253_402_300_800
"""The year 10000. An expiry in milliseconds is beyond it, and must not make a token that never
expires."""


class _Registry(jws.JWSRegistry):
    """Only the listed headers are accepted."""

    max_header_length = LONGEST
    max_payload_length = LONGEST


def is_signed(token: str) -> bool:
    """Whether it has the form of one."""
    return COMPACT.fullmatch(token) is not None


class SignedTokens:
    """Those of one issuer."""

    def __init__(self, jwt: Jwt, keys: FiledKeys | FetchedKeys, now_us: Callable[[], int]) -> None:
        self._jwt = jwt
        self._keys = keys
        self._now_us = now_us
        self._registry = _Registry(algorithms=LISTED, strict_check_header=False)
        self.named = f"{jwt!r} {keys.named}"
        """What it takes tokens by."""

    async def user(self, token: str) -> User:
        """The user of the token. Raises Unauthenticated, without a reason."""
        if len(token) > LONGEST:
            raise Unauthenticated(f"the token is longer than {LONGEST} characters")
        claims = await self._claims(token)
        now_s = self._now_us() / SECOND_US
        ends_s = _number(claims.get("exp"))
        begins_s = _number(claims.get("nbf", 0))
        issued = claims.get("iss") == self._jwt.issuer and self._is_audience(claims.get("aud"))
        if not issued or ends_s is None or begins_s is None or ends_s > END_OF_TIME_S:
            raise _refused()
        if now_s >= ends_s:
            raise Unauthenticated("the token has expired")
        if now_s < begins_s:
            raise _refused()
        name = claims.get(self._jwt.user)
        if not isinstance(name, str) or not name:
            raise _refused()
        return User(name, self._groups(claims), _texts(claims), int(ends_s * SECOND_US))

    async def _claims(self, token: str) -> Mapping[str, object]:
        """The claims, if its key has signed them."""
        try:
            signed = jws.extract_compact(token.encode(), registry=self._registry)
            header = signed.headers()
            kid, algorithm = header.get("kid"), header.get("alg")
            if not isinstance(algorithm, str) or not isinstance(kid, str | None):
                raise _refused()
            key = await self._keys.find(kid, algorithm)
            if key is None or "crit" in header:
                raise _refused()
            if not jws.validate_compact(signed, key, [algorithm], self._registry):
                raise _refused()
            claims = orjson.loads(signed.payload)
        except UNREADABLE:
            raise _refused() from None
        if not isinstance(claims, dict):
            raise _refused()
        return claims

    def _is_audience(self, given: object) -> bool:
        """The claim is a text or a list of texts (RFC 7519)."""
        return given == self._jwt.audience or (
            isinstance(given, list) and self._jwt.audience in given
        )

    def _groups(self, claims: Mapping[str, object]) -> frozenset[str]:
        given = claims.get(self._jwt.groups)
        listed = given.split() if isinstance(given, str) else given
        if not isinstance(listed, list):
            return frozenset()
        return frozenset(one for one in listed if isinstance(one, str))


def _refused() -> Unauthenticated:
    """The reason is for the issuer to find out: a forger learns nothing."""
    return Unauthenticated("the token is not good")


def _number(given: object) -> float | None:
    """A date of a token, seconds since 1970; None if it is something else."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
        return None
    return float(given)


def _texts(claims: Mapping[str, object]) -> dict[str, str]:
    """Claims that are one value, as texts; numbers and booleans as JSON writes them."""
    found: dict[str, str] = {}
    for name, value in claims.items():
        if isinstance(value, str):
            found[name] = value
        elif isinstance(value, bool | int | float):
            found[name] = orjson.dumps(value).decode()
    return found
