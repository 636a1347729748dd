"""Detects an open server: one that listens beyond loopback without authentication.

`sow check` reports it as an error; yet it may be intended, in a network that is protected by other
means. So it does not make a file invalid: the caller that starts a server passes the effective
address to `exposed`, and refuses or warns.
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
        f"{host} is not loopback, and there is no authentication: anyone who can reach it may "
        "read, publish and delete",
        "add <Security> with <Authentication> and <Role>, or listen on 127.0.0.1; or run sow "
        "serve --insecure if this is meant",
    )


def exposure(configuration: Configuration, line: FileLine) -> Finding | None:
    """What is wrong with the address in a file, at the line of its Listen."""
    wrong = exposed(configuration.host, configuration.security)
    return Finding(line.file, int(line), "Listen", "error", *wrong) if wrong else None
