"""The files of users, tokens, keys and certificates that commands edit: those of the
configuration, or --file."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import click

from sow.cli.options import variables_option
from sow.config import require
from sow.core.security_definitions import Security
from sow.errors import ClientError, ConfigError, clipped


def config_options(field: str, element: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Passes a command the file in `field` of Authentication, whose element is `element`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def found(
            config: str, variables: dict[str, str], file: str | None, *given: Any, **named: Any
        ) -> Any:
            return command(*given, file=file or _file(config, variables, field, element), **named)

        with_file = click.option(
            "--file", type=click.Path(), help="The file, instead of the configuration's."
        )
        with_config = click.option(
            "--config",
            default="config.xml",
            show_default=True,
            type=click.Path(),
            help="The configuration that names the file.",
        )
        return with_config(variables_option(with_file(found)))

    return decorate


def _file(config: str, variables: dict[str, str], field: str, element: str) -> str:
    security = require(config, variables, os.environ).security
    file = str(getattr(security.authentication, field, ""))
    if not file:
        raise ClientError(
            f"{config} names no file of {element}: add <{element}><File>…</File></{element}> to "
            "Authentication in Security, or give --file"
        )
    return file


def file_named(file: str, name: str) -> ClientError:
    """The error for a name that is not in a file."""
    return ClientError(f"{file} has no {clipped(name)}")


@contextmanager
def refused() -> Iterator[None]:
    """Report an invalid value as a mistake of the user's."""
    try:
        yield
    except ValueError as error:
        raise ClientError(str(error)) from None


def unreadable(security: Security) -> Iterator[tuple[str, str]]:
    """The problem of each unreadable file that a configuration names, with its element."""
    # Imported here: a configuration without Security does not need these libraries.
    from sow.security.authentication.htpasswd import Users
    from sow.security.authentication.jwt import FiledKeys
    from sow.security.authentication.tokens import read_lines
    from sow.server.http.tls import server_context

    requested: list[tuple[str, Callable[[], object]]] = []
    if tls := security.tls:
        requested.append(("TLS", lambda: server_context(tls)))
    if by := security.authentication:
        if by.users_file:
            requested.append(("Users", lambda: Users.read(by.users_file)))
        if by.tokens_file:
            requested.append(("Tokens", lambda: read_lines(by.tokens_file)))
        if by.jwt and not by.jwt.keys.startswith("https://"):
            keys = by.jwt.keys
            requested.append(("JWT", lambda: FiledKeys(keys)))
    for element, reading in requested:
        try:
            reading()
        except ConfigError as error:
            yield element, str(error)
