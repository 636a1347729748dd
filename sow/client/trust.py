"""Trust: by what a client knows the server at an address with https:// again."""

import ssl

from sow.errors import ClientError


def trusting(ca: str | None) -> ssl.SSLContext | bool:
    """The context of connections to a server that the certificates in the file `ca`, in PEM form,
    vouch for; None: those that the machine trusts. Raises ClientError for a file that cannot be
    used."""
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise ClientError(
            f"ca {ca} cannot be used ({error.strerror or error}); it is the file of the "
            "certificates, in PEM form, by which the server is trusted"
        ) from None
