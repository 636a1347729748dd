"""Signed tokens (JWT) of an external issuer: its keys, by which they are verified, and parsing.

A token names its own algorithm, which is not trusted: the key decides which algorithms are allowed,
those of its own kind. It has to come from the issuer, be meant for the audience, and have an
expiry; there is no leeway for clocks.

The keys are a JSON Web Key Set, of a file or of an address. That of an address is fetched when it
is first needed and cached; an unknown key, or its age, causes another fetch, at a bounded rate, so
that tokens with made-up keys do not become requests to the issuer. When it cannot be fetched, the
cached one stays valid for a day.
"""

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256

import orjson
from joserfc import jwk, jws
from joserfc.errors import JoseError

from sow.core.clock import SECOND_US
from sow.core.security_definitions import Jwt, User
from sow.errors import ConfigError, IssuerAway, Unauthenticated, clipped
from sow.security.authentication import credentials
from sow.security.authentication.credentials import LONGEST

Key = jwk.Key
Fetch = Callable[[str], Awaitable[bytes]]
"""What an address answers. Raises OSError or TimeoutError."""

ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA", "Ed25519"),
    "oct": ("HS256", "HS384", "HS512"),
}
SECRET = "oct"
"""The same secret signs and verifies: publishing it gives it away."""
KEYS_MAX = 1_000
"""Checking a set takes longer with each further key, and no published set has more."""
RSA_BITS_MAX = 8_192
"""Checking a signature takes longer with each further bit, and no published key has more."""
FETCHED_EVERY_US = 30_000_000
"""The maximum. An issuer that rotates keys publishes them long before it signs with them."""
FRESH_US = 600_000_000
"""Younger keys are used without a new request: issuers announce a change hours ahead."""
STALE_US = 86_400_000_000
"""Beyond that, a withdrawn key would stay valid for as long as its issuer is unreachable."""


class Keys:
    """The keys of one set, by what they are called."""

    def __init__(self, keys: list[Key], named: Mapping[int, str]) -> None:
        self._keys = keys
        self._named = named

    def of(self, kid: str | None, algorithm: str) -> Key | None:
        """The key of that name which is good for this algorithm; without a name the only one."""
        fitting = [
            key
            for key in self._keys
            if algorithm in good_for(key) and (kid is None or self._named.get(id(key)) == kid)
        ]
        return fitting[0] if len(fitting) == 1 else None


def good_for(key: Key) -> tuple[str, ...]:
    """The algorithms of a key: those of its kind, or the one that it names."""
    own = key.alg
    of_kind = ALGORITHMS.get(key.key_type, ())
    return of_kind if own is None else tuple(one for one in of_kind if one == own)


def keys_of(text: bytes | str, secrets_too: bool) -> Keys:
    """The keys of a JSON Web Key Set that are for signatures; secrets only of a file of one's own.

    Raises ValueError with a sentence.
    """
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise ValueError("is no JSON") from None
    given = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise ValueError('is no JSON Web Key Set: {"keys": [{"kty": …}]}')
    if len(given) > KEYS_MAX:
        raise ValueError(f"has over {KEYS_MAX} keys")
    keys: list[Key] = []
    named: dict[int, str] = {}
    for one in given:
        kind = one.get("kty")
        if kind not in ALGORITHMS or one.get("use", "sig") != "sig":
            continue
        if kind == SECRET and not secrets_too:
            continue
        try:
            key = jwk.import_key(one)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise ValueError(f"has a key of kind {kind} that cannot be read: {error}") from None
        if isinstance(key, jwk.RSAKey) and key.public_key.key_size > RSA_BITS_MAX:
            raise ValueError(f"has an RSA key of more than {RSA_BITS_MAX} bits")
        keys.append(key)
        if isinstance(kid := one.get("kid"), str):
            named[id(key)] = kid
    if not keys:
        raise ValueError("has no key for signatures")
    return Keys(keys, named)


class FiledKeys:
    """The keys of a file."""

    def __init__(self, file: str) -> None:
        """Raises ConfigError."""
        text = credentials.read(file, "Keys")
        self.named = sha256(text.encode()).hexdigest()
        """Other keys have another name: what one of them has signed is to be checked again."""
        try:
            self._keys = keys_of(text, secrets_too=True)
        except ValueError as error:
            raise ConfigError(f"the file of Keys {error}: {file}") from None

    async def find(self, kid: str | None, algorithm: str) -> Key | None:
        """That key, if there is one."""
        return self._keys.of(kid, algorithm)


class FetchedKeys:
    """The keys at an address."""

    named = ""
    """Whatever keys it has: what they have signed is checked again before long."""

    def __init__(self, address: str, now_us: Callable[[], int]) -> None:
        """`go_on` sets how they are fetched."""
        self._address = address
        self._now_us = now_us
        self._fetch: Fetch
        self._report: Callable[[str], None]
        self._keys: Keys | None = None
        self._is_old = False
        self._fetched_us = 0
        self._tried_us: int | None = None
        self._renewing: asyncio.Task[None] | None = None

    def go_on(self, fetch: Fetch, report: Callable[[str], None]) -> None:
        """At a start, or after a reload: fetch the keys again when they are needed, and keep the
        cached ones if that fails; `report` is then called with a sentence."""
        self._fetch, self._report, self._is_old = fetch, report, True

    async def find(self, kid: str | None, algorithm: str) -> Key | None:
        """That key, if there is one; they may have to be fetched first. Raises IssuerAway where
        there are none to look among."""
        found = None if self._is_old else self._kept(FRESH_US, kid, algorithm)
        if found is None:
            if self._renewing is None and self._may_fetch():
                self._renewing = asyncio.create_task(self._renew())
            if self._renewing is not None:
                # A waiter that is cancelled must not cancel the fetch of the others.
                await asyncio.shield(self._renewing)
            if not self._are_younger(STALE_US):
                raise IssuerAway(
                    "the issuer of tokens cannot be reached, so nobody knows whether this one is "
                    "good; try again in some seconds"
                )
            found = self._kept(STALE_US, kid, algorithm)
        return found

    def _kept(self, age_us: int, kid: str | None, algorithm: str) -> Key | None:
        if self._keys is None or not self._are_younger(age_us):
            return None
        return self._keys.of(kid, algorithm)

    def _are_younger(self, age_us: int) -> bool:
        return self._keys is not None and self._now_us() - self._fetched_us <= age_us

    def _may_fetch(self) -> bool:
        return self._tried_us is None or self._now_us() - self._tried_us >= FETCHED_EVERY_US

    async def _renew(self) -> None:
        self._tried_us = self._now_us()
        try:
            self._keys = keys_of(await self._fetch(self._address), secrets_too=False)
            self._fetched_us, self._is_old = self._now_us(), False
        except (OSError, TimeoutError, ValueError) as error:
            self._report(
                f"the keys at {self._address} cannot be had: {clipped(str(error) or 'no answer')}"
            )
        finally:
            self._renewing = None


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
