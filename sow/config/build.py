"""From sections to the dataclasses of `sow.definitions`, once the rules have passed them."""

import dataclasses
import os.path

from sow.config.files import file_name
from sow.config.message_types import message_types_of
from sow.config.structure import Section
from sow.config.underlying import underlyings
from sow.definitions import Configuration, Security, Tls, Topic, View


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
    )


def _security(security: Security, directory: str) -> Security:
    """The same with its files beside the document, where it does not say otherwise."""
    tls = security.tls
    if tls is None:
        return security
    beside = {
        field.name: os.path.join(directory, getattr(tls, field.name))
        for field in dataclasses.fields(tls)
    }
    return dataclasses.replace(security, tls=Tls(**beside))


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
    if make is Topic:
        fields["file_name"] = file_name(value)
    if make is View:
        fields["underlyings"] = tuple(underlyings(value))
        fields.pop("underlying_type", None)  # which was compared
    return make(**fields)
