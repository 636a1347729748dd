"""Headers `Authorization` that are nearly right, and the users that they authenticate.

Passwords, tokens and signed tokens; by mistake, and as they are forged: signed by another party or
with public knowledge, with embedded keys, for another server, expired. Keys are generated in each
process: none may be in the repository, so a failing input cannot be made again, and is reported as
a whole.
"""

import asyncio
import base64
import hmac
import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import bcrypt
import orjson

from sow.core.security_definitions import Authentication, Jwt
from sow.errors import TooManyLogons, Unauthenticated
from sow.security.authentication.authenticator import Authenticator, Logons
from sow.security.authentication.credentials import LONGEST, Credentials
from sow.security.authentication.tokens import sum_of
from tests.fuzz.inputs import EVIL
from tests.security.authentication.signing import JWT, NOW_S, NOW_US, claims, key, key_set, token

SECRET = "sow_Tk3n-of-a-program"
PASSWORD = "s3cret:with ü"
DETAIL_MAX = 300
SIGNERS = (("EC", "k1"), ("RSA", "r"), ("OKP", "o"), ("oct", "s"))
BAD_CLAIMS = (
    {"iss": None}, {"iss": "https://evil.example"}, {"iss": [JWT.issuer]}, {"aud": None},
    {"aud": "other"}, {"aud": {"sow": 1}}, {"aud": [["sow"]]}, {"sub": None}, {"sub": ""},
    {"sub": ["ann"]}, {"exp": None}, {"exp": NOW_S}, {"exp": 0}, {"exp": -1}, {"exp": "9999999999"},
    {"exp": 10**18}, {"exp": 1e300}, {"exp": True}, {"exp": [NOW_S + 60]},
    {"nbf": NOW_S + 1}, {"nbf": "0"}, {"nbf": {}},
)  # fmt: skip
HEADERS = (
    {"alg": "none"}, {"alg": "HS256"}, {"alg": "RS256"}, {"alg": ["ES256"]}, {"alg": None},
    {"alg": "es256"}, {"alg": {"ES256": 1}}, {"alg": 7}, {"alg": "dir"}, {"kid": 7}, {"kid": []},
    {"kid": "k2"}, {"kid": "../../dev/null"}, {"kid": "' OR 1=1"}, {"kid": "x" * 5_000},
    {"crit": ["exp"]}, {"crit": []}, {"crit": ["b64"], "b64": False}, {"zip": "DEF"},
    {"jku": "https://evil.example/keys"}, {"x5u": "https://evil.example/c"}, {"x5c": ["AAAA"]},
)  # fmt: skip


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@cache
def loop() -> asyncio.Runner:
    """Of this process: a password is checked on one."""
    return asyncio.Runner()


@cache
def good_tokens() -> dict[str, str]:
    """Signed tokens that are good, and whose they are; one of each kind of key."""
    signed = {}
    for kind, kid in SIGNERS:
        said = claims(sub=f"user-{kid}", groups=["desk"], desk="fx")
        signed[token(said, key(kind, kid))] = f"user-{kid}"
    return signed


@cache
def stranger():
    """A key that is not published."""
    return key("EC", "stranger")


class CredentialsDoor:
    """The authenticator: only valid credentials are accepted, each for its own user."""

    def __init__(self) -> None:
        self._slow = 0
        self._tokens = {SECRET: "feed"} | good_tokens()
        with TemporaryDirectory() as name:
            place = Path(name)
            kept = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
            expired = f"late {sum_of('expired')} 2000-01-01T00:00:00Z\n"
            files = {
                "users": f"ann:{kept}\n",
                "tokens": f"feed {sum_of(SECRET)}\n{expired}",
                "keys.json": orjson.dumps(key_set(*(key(*one) for one in SIGNERS))).decode(),
            }
            for file, text in files.items():
                (place / file).write_text(text)
            self._authenticator = Authenticator(
                Authentication(
                    users_file=str(place / "users"),
                    tokens_file=str(place / "tokens"),
                    jwt=Jwt(JWT.issuer, JWT.audience, str(place / "keys.json")),
                    client_certificates=True,
                ),
                now_us=lambda: NOW_US,
                fetch=self._fetched,
                logons=Logons(lambda: 20),
                beside=self._hashed,
            )

    def input(self, rng: random.Random) -> bytes:
        """The next header."""
        good = [*(f"Bearer {one}" for one in self._tokens), basic(f"ann:{PASSWORD}")]
        header = rng.choice(
            (
                lambda: rng.choice(good),
                lambda: rng.choice(good),
                lambda: f"Bearer {forged(rng)}",
                lambda: f"Bearer {taken_apart(rng)}",
                lambda: basic(rng.choice((f"ann:{SECRET}", f":{PASSWORD}", "ann:", "ann", "é:\0"))),
                lambda: f"Bearer {rng.choice(('expired', sum_of(SECRET), SECRET * 999, ''))}",
            )
        )()
        return changed(rng, header.encode()) if rng.random() < 0.6 else header.encode()

    def knock(self, data: bytes) -> bool:
        """Whether somebody is let in; an assertion fails if it is somebody else."""
        header = data.decode(errors="surrogateescape")  # as aiohttp reads it
        self._slow = 0
        # After a failure an address must wait for the next try.
        address = f"2001:db8:{sum_of(header)[:4]}::1"
        name, refusal = "", ""
        try:
            shown = Credentials.of_header(header)
            name = loop().run(self._authenticator.identify(shown, address)).name
        except (Unauthenticated, TooManyLogons) as error:
            refusal = error.detail
        assert self._slow <= 1, "one try is one hash at the most"
        assert len(refusal) < DETAIL_MAX
        assert SECRET not in refusal
        assert PASSWORD not in refusal
        owner = self._owner(header)
        assert name in ("", owner), f"is not {name}"
        assert name or not owner or "too many logons" in refusal, f"{owner} is refused: {refusal}"
        return bool(name)

    def _owner(self, header: str) -> str:
        """The user of these credentials, parsed independently of the server; empty if none."""
        scheme, _, shown = header.partition(" ")
        shown = shown.strip()
        if scheme.lower() == "basic":
            return "ann" if plain(shown) == f"ann:{PASSWORD}".encode() else ""
        if scheme.lower() != "bearer" or len(header) > LONGEST:
            return ""
        return self._tokens.get(shown, "")

    async def _hashed(self, function, *arguments) -> bool:
        self._slow += 1
        return function(*arguments)

    async def _fetched(self, address: str) -> bytes:
        raise AssertionError(f"a token is not to say where its keys are: {address}")


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def plain(shown: str) -> bytes:
    try:
        return base64.b64decode(shown, validate=True)
    except ValueError:
        return b""


def forged(rng: random.Random) -> str:
    """A token by which servers were fooled."""
    kind, kid = rng.choice(SIGNERS)
    public = key("RSA", "r").as_pem(private=False)
    said = claims(**rng.choice(({}, {"sub": "admin"}, rng.choice(BAD_CLAIMS))))
    match rng.randrange(5):
        case 0:
            return token(claims(**rng.choice(BAD_CLAIMS)), key(kind, kid))
        case 1:
            more = rng.choice(({}, {"jwk": stranger().as_dict(private=False)}))
            return token(said, stranger(), kid=rng.choice((kid, None, "stranger")), **more)
        case 2:
            none = rng.choice(("none", "None", "nOnE", "NONE", ""))
            return f"{written({'alg': none, 'kid': kid})}.{encoded(orjson.dumps(said))}."
        case 3:
            secret = rng.choice((public, public.strip(), b"", kid.encode(), b"secret"))
            text = f"{written({'alg': 'HS256', 'kid': kid})}.{encoded(orjson.dumps(said))}"
            return f"{text}.{encoded(hmac.digest(secret, text.encode(), 'sha256'))}"
        case _:
            return token(rng.choice((b"[]", b"ann", b"[" * 3_000, b"{", b"\xff", b'"ann"')))


def written(said: dict[str, object]) -> str:
    """A header as it stands in a token."""
    return encoded(orjson.dumps({name: one for name, one in said.items() if one is not None}))


def taken_apart(rng: random.Random) -> str:
    """A good token with one part of another token, or of none."""
    parts = rng.choice([*good_tokens()]).split(".")
    others = rng.choice([*good_tokens()]).split(".")
    at = rng.randrange(4)
    if at == 3:
        return ".".join([written({"alg": "ES256", "kid": "k1"} | rng.choice(HEADERS)), *parts[1:]])
    parts[at] = rng.choice(
        (others[at], "", "A" * len(parts[at]), parts[at][::-1], f"{parts[at]}=", parts[at] * 200)
    )
    return ".".join(parts)


def changed(rng: random.Random, data: bytes) -> bytes:
    """The same after up to three edits: of a byte, of a piece, or at its ends."""
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        put = rng.choice((rng.choice(EVIL), rng.randbytes(1), b"=", b".", b" ", b"-", b"A", b""))
        data = data[:at] + put + data[at + rng.choice((0, 0, 1, 1, 2, 30)) :]
    return data
