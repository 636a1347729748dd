"""config.xml: read, checked and turned into the plain data of `sow.definitions`.

Text becomes nodes (`document`), nodes become sections by the table of elements (`structure`,
`elements`), the rules say what must agree (`rules`), and sections become dataclasses (`build`).
Every mistake of a file is found at once, each with its line and what to write instead. The
process's environment is not read here: a caller passes `environment`.
"""

import os.path
from collections.abc import Mapping

from sow.config.build import build
from sow.config.document import DOCUMENT_BYTES_MAX, parse_document
from sow.config.exposure import exposed, exposure
from sow.config.findings import Finding, Findings, Loaded, Severity
from sow.config.rules import check
from sow.config.structure import read_root
from sow.config.variables import Variables
from sow.definitions import Configuration
from sow.errors import ConfigError

__all__ = ["Finding", "Loaded", "Severity", "exposed", "load", "loads", "require"]

NONE: Mapping[str, str] = {}


def loads(
    text: str | bytes,
    file: str = "config.xml",
    variables: Mapping[str, str] = NONE,
    environment: Mapping[str, str] = NONE,
) -> Loaded:
    """Read a configuration from `text`; `file` is what findings call it.

    `${NAME}` is looked up in `variables`, then in `environment`.
    """
    findings = Findings(file)
    configuration = exposing = None
    node = parse_document(text, findings)
    if node is not None:
        root = read_root(node, Variables(file, variables, environment), findings)
        if root is not None:
            check(root, findings)
            if not findings.has_errors():
                configuration = build(root, os.path.dirname(file))
                exposing = exposure(configuration, file, root.line_of("Listen"))
    return Loaded(configuration, findings.in_order(), exposing)


def load(
    path: str, variables: Mapping[str, str] = NONE, environment: Mapping[str, str] = NONE
) -> Loaded:
    """Read the configuration file at `path`; one that cannot be read is a finding too."""
    try:
        with open(path, "rb") as file:
            # One byte over the bound is enough to see that the file is over it.
            text = file.read(DOCUMENT_BYTES_MAX + 1)
    except OSError as error:
        findings = Findings(path)
        message = f"cannot be read: {error.strerror}"
        findings.error(1, "file", message, "give the path of a configuration file")
        return Loaded(None, findings.in_order())
    return loads(text, path, variables, environment)


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
