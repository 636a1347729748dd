"""Keys by which an external issuer signs tokens: a JSON Web Key Set, of a file or of an address.

That of an address is fetched when it is first needed and cached; an unknown key, or its age, causes
another fetch, at a bounded rate, so that tokens with made-up keys do not become requests to the
issuer. When it cannot be fetched, the cached one stays valid for a day. Each key is valid only for
the algorithms of its own kind, whatever a token claims.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256

import orjson
from joserfc import jwk
from joserfc.errors import JoseError

from sow.errors import ConfigError, IssuerAway, clipped
from sow.security.authentication import user_file

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
RSA_BITS_MAX = 8_192
"""Checking takes longer with each further one, and none that is published has more."""
FETCHED_EVERY_US = 30_000_000
"""The maximum. An issuer that rotates keys publishes them long before it signs with them."""
FRESH_US = 600_000_000
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
        text = user_file.read(file, "Keys")
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
