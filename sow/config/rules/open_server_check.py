"""Whether a server stands open: it listens beyond loopback and asks nobody who he is.

That is a mistake of a file that is to be run, and `sow check` says so; yet it may be meant, in a
network that is closed by other means. So it does not keep a file from being read: whoever runs it,
with the address that is then in force, asks `exposed` and refuses or warns.
"""

from sow.config.diagnostics import FileLine, Finding
from sow.core.definitions import Configuration
from sow.core.origin_parsing import is_loopback
from sow.core.security_definitions import Security


def exposed(host: str, security: Security) -> tuple[str, str] | None:
    """What is wrong with listening at `host`, and what to write instead; None if nothing is."""
    if is_loopback(host) or security.authentication is not None:
        return None
    return (
        f"{host} is not loopback, and nobody is asked for a password: whoever can reach it may "
        "read, publish and delete",
        "say who may by <Security><Authentication> and <Role>, or listen on 127.0.0.1; or run sow "
        "serve --insecure if this is meant",
    )


def exposure(configuration: Configuration, line: FileLine) -> Finding | None:
    """What is wrong with the address in a file, at the line of its Listen."""
    wrong = exposed(configuration.host, configuration.security)
    return Finding(line.file, int(line), "Listen", "error", *wrong) if wrong else None
