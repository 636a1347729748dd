"""Loads config.xml: parses and checks it, and builds the plain data of `sow.core.definitions`.

Text is parsed into nodes and `<Include>` is resolved (`document`), nodes are bound to sections by
the table of elements (`binder`, `elements`), rules check what must agree between elements
(`rules`), and sections become dataclasses (`build`).
All mistakes of a file are reported at once, each with its line and a remedy. The process's
environment is not read here: the caller passes `environment`.
"""

import dataclasses
import os
import os.path
import stat
from collections.abc import Mapping

from sow.config.binder import Section, read_root
from sow.config.diagnostics import Diagnostics, Finding, Loaded, Reviewed, Severity
from sow.config.document import DOCUMENT_BYTES_MAX, Reader, Variables, include, parse_document
from sow.config.elements.topic import QUEUE
from sow.config.message_types import message_types_of
from sow.config.rules import check, file_name
from sow.config.rules.security_rules import exposed, exposure
from sow.config.rules.topic_rules import underlyings
from sow.core.definitions import Configuration, Topic, View
from sow.core.security_definitions import Security, Tls
from sow.errors import ConfigError

__all__ = [
    "Finding",
    "Loaded",
    "Reviewed",
    "Severity",
    "exposed",
    "load",
    "loads",
    "require",
    "review",
]

NONE: Mapping[str, str] = {}


def read_file(path: str, bytes_max: int) -> bytes:
    """The first `bytes_max` bytes of a file; raises OSError.

    Anything but a regular file is refused: opening a pipe would block until it has a writer.
    """

    def without_waiting(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK)

    with open(path, "rb", opener=without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "it is no regular file")
        return file.read(bytes_max) or b""


def loads(
    text: str | bytes,
    file: str = "config.xml",
    variables: Mapping[str, str] = NONE,
    environment: Mapping[str, str] = NONE,
    read: Reader = read_file,
) -> Loaded:
    """Read a configuration from `text`; `file` is what findings call it.

    `${NAME}` is looked up in `variables`, then in `environment`. Files that are included are got
    by `read`, by paths relative to `file`.
    """
    findings = Diagnostics(file)
    configuration = exposing = None
    root = _root(text, Variables(file, variables, environment), findings, read)
    if root is not None:
        check(root, findings)
        if not findings.has_errors():
            configuration = build(root, os.path.dirname(file))
            exposing = exposure(configuration, root.line_of("Listen"))
    return Loaded(configuration, findings.in_order(), exposing)


def _root(
    text: str | bytes, variables: Variables, findings: Diagnostics, read: Reader
) -> Section | None:
    """The document with its includes; None, with a finding, if any of them could not be read: an
    element that is only in an unread file would be reported as missing."""
    node = parse_document(text, findings.file, findings)
    if node is None:
        return None
    node = include(node, len(text), variables, findings, read)
    return None if findings.has_errors() else read_root(node, variables, findings)


def load(
    path: str, variables: Mapping[str, str] = NONE, environment: Mapping[str, str] = NONE
) -> Loaded:
    """Read the configuration file at `path`; one that cannot be read is a finding too."""
    try:
        with open(path, "rb") as file:
            # One byte over the bound is enough to see that the file is over it.
            text = file.read(DOCUMENT_BYTES_MAX + 1)
    except OSError as error:
        findings = Diagnostics(path)
        message = f"cannot be read: {error.strerror}"
        findings.error(1, "file", message, "give the path of a configuration file")
        return Loaded(None, findings.in_order())
    return loads(text, path, variables, environment)


def review(
    path: str, variables: Mapping[str, str] = NONE, environment: Mapping[str, str] = NONE
) -> Reviewed:
    """The configuration file at `path` as it is now, with its findings."""
    loaded = load(path, variables, environment)
    try:
        text = read_file(path, DOCUMENT_BYTES_MAX).decode(errors="replace")
    except OSError:
        text = ""  # already among the findings
    return Reviewed(path, text, loaded.checked.findings)


def require(
    path: str, variables: Mapping[str, str] = NONE, environment: Mapping[str, str] = NONE
) -> Configuration:
    """The configuration at `path`; raises ConfigError naming every error of the file."""
    loaded = load(path, variables, environment)
    if loaded.configuration is not None:
        return loaded.configuration
    first, *others = loaded.errors  # the error begins with the place of the first itself
    detail = "\n".join([first.advice, *map(str, others)])
    raise ConfigError(detail, file=first.file, line=first.line, element=first.element)


def build(root: Section, directory: str) -> Configuration:
    """The configuration of a document in `directory`, to which DataDirectory is relative."""
    configuration = _make(root)
    assert isinstance(configuration, Configuration)
    data_directory = os.path.join(directory, configuration.data_directory)
    return dataclasses.replace(
        configuration,
        data_directory=data_directory,
        message_types=message_types_of(root),
        security=_security(configuration.security, directory),
        pipelines=tuple(
            dataclasses.replace(one, token_file=os.path.join(directory, one.token_file))
            if one.token_file
            else one
            for one in configuration.pipelines
        ),
        actions=tuple(
            dataclasses.replace(
                one,
                trigger=dataclasses.replace(one.trigger, name=one.name or f"action {number}"),
            )
            for number, one in enumerate(configuration.actions, 1)
        ),
    )


def _security(security: Security, directory: str) -> Security:
    """The same with default paths of its files, beside the document."""

    def beside(file: str) -> str:
        return os.path.join(directory, file) if file and not file.startswith("https://") else file

    tls, authentication = security.tls, security.authentication
    if tls is not None:
        tls = Tls(beside(tls.certificate), beside(tls.private_key), beside(tls.client_ca))
    if authentication is not None:
        jwt = authentication.jwt
        authentication = dataclasses.replace(
            authentication,
            users_file=beside(authentication.users_file),
            tokens_file=beside(authentication.tokens_file),
            jwt=jwt and dataclasses.replace(jwt, keys=beside(jwt.keys)),
        )
    return dataclasses.replace(security, tls=tls, authentication=authentication)


def _make(value: object) -> object:
    """A section's object, a repeated element's tuple, or the value itself."""
    if isinstance(value, list):
        return tuple(_make(item) for item in value)
    if not isinstance(value, Section):
        return value
    make = value.element.make
    assert make is not None
    fields = {name: _make(part) for name, part in value.values.items()}
    if isinstance(make, type) and "line" in {field.name for field in dataclasses.fields(make)}:
        fields["line"] = value.line
    if value.element is QUEUE:
        fields |= {"line": value.line, "file_name": file_name(value)}
    if make is Topic:
        fields["file_name"] = file_name(value)
    if make is View:
        fields["underlyings"] = tuple(underlyings(value))
        fields.pop("underlying_type", None)  # which was compared
    return make(**fields)
