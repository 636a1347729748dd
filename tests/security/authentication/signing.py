"""Keys and signed tokens of the tests: made anew in each run; none may stand in the repository."""

from functools import cache

import orjson
from joserfc import jwk, jws

from sow.core.security_definitions import Jwt

JWT = Jwt("https://id.example", "sow", "")
NOW_S = 1_800_000_000
NOW_US = NOW_S * 1_000_000
LISTED = ["RS256", "PS256", "ES256", "Ed25519", "EdDSA", "HS256", "none"]


@cache
def key(kind="EC", kid="k1"):
    """A private key of a kind."""
    size = {"EC": "P-256", "RSA": 2048, "OKP": "Ed25519", "oct": 256}[kind]
    return jwk.generate_key(kind, size, {"kid": kid}, private=True)


def key_set(*keys):
    """What an issuer publishes of them."""
    return {"keys": [one.as_dict(private=one.key_type == "oct") for one in keys]}


def claims(**changed):
    """Those of a good token, but for what is changed; None leaves one out."""
    good = {"iss": JWT.issuer, "aud": "sow", "sub": "ann", "exp": NOW_S + 60}
    return {name: value for name, value in (good | changed).items() if value is not None}


def token(said, by=None, **header):
    """A token that says that, signed by a key."""
    by = by or key()
    algorithm = {"EC": "ES256", "RSA": "RS256", "OKP": "Ed25519", "oct": "HS256"}[by.key_type]
    header = {"alg": algorithm, "kid": by.kid} | header
    header = {name: value for name, value in header.items() if value is not None}
    registry = jws.JWSRegistry(algorithms=LISTED, strict_check_header=False)
    payload = said if isinstance(said, bytes) else orjson.dumps(said)
    return jws.serialize_compact(header, payload, by, LISTED, registry)
