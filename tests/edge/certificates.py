"""Certificates for tests: an authority of their own, and what it signs, as files."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Certificates:
    """Files in PEM form: the authority's certificate, a server's and its key."""

    ca: str
    certificate: str
    key: str

    @property
    def element(self):
        return (
            f"<TLS><Certificate>{self.certificate}</Certificate>"
            f"<PrivateKey>{self.key}</PrivateKey></TLS>"
        )


@cache
def authority(name="one"):
    """An authority; those of two names know nothing of each other."""
    return trustme.CA(organization_name=f"authority {name}")


def certificates(directory: Path, signed_by="one", not_after=None) -> Certificates:
    """Files of a server that listens on loopback, written into `directory`; good until
    `not_after`, if that is given."""
    made = authority(signed_by).issue_cert("127.0.0.1", "localhost", not_after=not_after)
    files = {name: directory / f"{name}.pem" for name in ("ca", "certificate", "key")}
    authority(signed_by).cert_pem.write_to_path(files["ca"])
    files["certificate"].write_bytes(b"".join(one.bytes() for one in made.cert_chain_pems))
    made.private_key_pem.write_to_path(files["key"])
    return Certificates(*(str(files[name]) for name in ("ca", "certificate", "key")))
