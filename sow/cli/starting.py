"""What `sow serve` begins with: the topics of its command line, the server above it, or nothing.

A server needs no file where its options say enough: the topics of --topic are one, and what
--follow and --upstream lead to has everything else. The folder of its data may be the user's own,
though, so one that holds something else is left alone.
"""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from sow.cli.commands.init import DATA_DIRECTORY, document, named_topic
from sow.client.connector import ClientAuth, checked_url
from sow.core.definitions import Configuration, JournalSettings
from sow.errors import ClientError, ConfigError
from sow.server.boot.follower import OWN_FOLDERS
from sow.server.boot.reporting import Upstream
from sow.store.manifest import MANIFEST_FILE

NOTHING_CONFIGURED = "<SOWConfig><Name>sow</Name></SOWConfig>"
"""A server of another one's records, without a file: everything has its default."""
OF_FOLLOWERS = {*OWN_FOLDERS, "followers"}
"""What followers have in the folder."""


def starter_of(config: str, is_given: bool, named: Sequence[str], has_server: bool) -> str:
    """The configuration of a server without a file, empty where it has one: that of the topics of
    --topic, or, where it `has_server` above, every default."""
    if named:
        if is_given:
            raise click.UsageError("--topic replaces CONFIG; add the topic to the file")
        return document([*map(named_topic, named)])
    is_absent = not is_given and not Path(config).exists()
    return NOTHING_CONFIGURED if has_server and is_absent else ""


def check_folder(starter: str, data_directory: str | None) -> None:
    """Raise ClientError where a server without a file would keep its records among other things,
    since it was given no directory: a folder of this name often holds the user's own data."""
    directory = Path(DATA_DIRECTORY)
    if not starter or data_directory is not None or not directory.is_dir():
        return
    holds = {one.name for one in directory.iterdir()}
    if holds - OF_FOLLOWERS and MANIFEST_FILE not in holds:
        raise ClientError(
            f"the folder {DATA_DIRECTORY} here holds something else; choose where to keep "
            "records: --data-dir DIRECTORY"
        )


def server_above(
    upstream: str | None, follow: str | None, token: str | None, ca: str | None, is_beside: bool
) -> Upstream | None:
    """The server that has the records, or is followed. One that runs `is_beside` it trusts it, and
    its token is that server's own: a follower is let in by it, a chained server reports by it and
    shows what its clients show."""
    if upstream is not None and follow is not None:
        raise click.UsageError(
            "a server with --follow has the records, and one with --upstream has none: give one"
        )
    url = upstream or follow
    if url is None:
        return None
    found = Upstream(checked_url(url), token or "")
    if is_beside:
        return found if follow else found._replace(token="", report_token=found.token)
    return found._replace(encryption=ClientAuth(ca=ca).context())


def scratch(ctx: click.Context) -> str:
    """A directory for what does not outlive a chained server."""
    return ctx.with_resource(tempfile.TemporaryDirectory(prefix="sow-chained-"))


def without_records(configuration: Configuration, applies: bool = False) -> Configuration:
    """The part of a configuration that counts for a chained server: its upstream has the rest, and
    `applies` what roles say of records. Raises ConfigError where no server would."""
    for role in () if applies else configuration.security.roles:
        for allow in role.allows:
            if (allow.filter, allow.select, allow.check) != (None, None, None):
                raise ConfigError(
                    f"the role {role.name} has a Filter, Select or Check for {allow.topic}, which "
                    "a chained server does not apply: give it in the configuration of the upstream "
                    "server, which applies it to this server's clients, and leave it out here"
                )
    return dataclasses.replace(configuration, topics=(), pipelines=(), journal=JournalSettings())
