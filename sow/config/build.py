"""From sections to the dataclasses of `sow.core.definitions`, once the rules have passed them."""

import dataclasses
import os.path

from sow.config.binder import Section
from sow.config.files import file_name
from sow.config.message_types import message_types_of
from sow.config.rules.topic_rules import underlyings
from sow.core.definitions import Configuration, Topic, View
from sow.core.security_definitions import Security, Tls


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
    if make is Topic:
        fields["file_name"] = file_name(value)
    if make is View:
        fields["underlyings"] = tuple(underlyings(value))
        fields.pop("underlying_type", None)  # which was compared
    return make(**fields)
