"""What the nodes of a shared log have in common of their configurations: all but Node, Advertise,
Listen and paths.

    packed ───────> in the `lead` entry of who leads, and in a `reload`: what holds from there on
    differences ──> why a node that has another file does not join, by elements of config.xml
    with_own ─────> the configuration of one node: what the log has, and what its own file says of
                    its machine
"""

import zlib
from base64 import b85decode, b85encode
from collections.abc import Iterator
from dataclasses import fields, replace
from hashlib import blake2b

from sow.config.elements.table import ROOT
from sow.core.definitions import Configuration, without_system_topics
from sow.engine.configuration_history import configuration_of, node_text, shared_part
from sow.engine.definition_changes import changed_elements, kind_of

PACKED_MAX = 512 * 1024
"""Characters of a configuration in an entry of the log, half of what one takes: thousands of
definitions. A larger one is known by its fingerprint alone."""
SHOWN_MAX = 5
"""So many differences are named."""


def with_own(shared: Configuration, own: Configuration) -> Configuration:
    """The configuration of the node whose file says `own`, under what the log has."""
    shared = without_system_topics(shared)
    return replace(
        shared,
        host=own.host,
        port=own.port,
        data_directory=own.data_directory,
        journal=replace(shared.journal, directory=own.journal.directory),
        security=replace(shared.security, tls=own.security.tls),
        shared_log=own.shared_log,
        pipelines=own.pipelines,
    )


def fingerprint(configuration: Configuration) -> str:
    """Of all that has to be the same on every node."""
    return blake2b(node_text(configuration).encode(), digest_size=8).hexdigest()


def packed(configuration: Configuration) -> str:
    """The same as text for an entry of the log; "" where that is too large."""
    text = b85encode(zlib.compress(node_text(configuration).encode())).decode()
    return text if len(text) <= PACKED_MAX else ""


def unpacked(text: str) -> Configuration | None:
    """The configuration of such a text; None where there is none, or a later release's."""
    try:
        return configuration_of(zlib.decompress(b85decode(text)).decode())
    except (ValueError, zlib.error):
        return None


def differences(there: str, own: Configuration) -> str:
    """In what a configuration differs from the one that the log has, as `packed`."""
    log_has = unpacked(there)
    if log_has is None:
        return "what is not known here, as it is too large"
    found = [*_different(shared_part(log_has), shared_part(own))]
    more = f", and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
    return ", ".join(found[:SHOWN_MAX]) + more or "by what this release does not know"


def _different(there: Configuration, here: Configuration) -> Iterator[str]:
    for one in fields(Configuration):
        if one.name != "topics" and getattr(there, one.name) != getattr(here, one.name):
            yield f"<{ROOT.filling(one.name) or one.name}>"
    before = {definition.name: definition for definition in there.topics}
    after = {definition.name: definition for definition in here.topics}
    for name, definition in (before | after).items():
        had, has = before.get(name), after.get(name)
        what = f"{kind_of(definition)} {name}"
        if had is None or has is None:
            yield f"{what}, which is only {'here' if had is None else 'there'}"
        elif type(had) is not type(has):
            yield f"what {what} is"
        elif changed := changed_elements(had, has):
            yield " and ".join(f"<{element}>" for element in changed) + f" of {what}"
    if [*before] != [*after] and before.keys() == after.keys():
        yield "the order of topics"
