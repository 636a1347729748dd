"""The rules of `<Security>`: authentication, roles, and the files that they rely on.

A file that only seems to require passwords is worse than one that requires none, so everything
without effect is an error.
"""

from collections.abc import Iterable, Mapping

import re2

from sow.config.binder import Section
from sow.config.diagnostics import Diagnostics, FileLine, Finding, at
from sow.core.addresses import HOST_DEFAULT, is_loopback
from sow.core.definitions import Configuration
from sow.core.paths import Path
from sow.core.security_definitions import OF_TOPICS, VERBS, Security
from sow.errors import ClientError
from sow.expressions import parse_projected, paths_in
from sow.security.row_level_security import read_condition

WAYS = {
    "users_file": "Users",
    "tokens_file": "Tokens",
    "jwt": "JWT",
    "client_certificates": "ClientCertificates",
}


NEEDS = {"Filter": ("read",), "Select": ("read",), "Check": ("write", "delete")}
"""Elements of an Allow, with the verbs that give them an effect: one of them must be there."""


def check_security(root: Section, findings: Diagnostics) -> None:
    """Apply every rule to the section of a document, if there is one."""
    security = root.values.get("security")
    if not isinstance(security, Section):
        return
    authentication = security.values.get("authentication")
    roles = security.sections("roles")
    if isinstance(authentication, Section):
        _pipelines(root, findings)
        _ways(root, security, authentication, findings)
        if not roles and not security.refused:
            findings.error(
                authentication.line,
                "Authentication",
                "authenticates users, and none of them may do anything: there is no Role",
                "add <Role><Name>…</Name><Member>*</Member><Allow>…</Allow></Role>",
            )
    elif roles:
        findings.error(
            roles[0].line,
            "Role",
            "has members, and there is no authentication",
            "add <Authentication> to Security",
        )
    _unique(roles, findings)
    check_guards(root, roles, findings)
    for role in roles:
        for allow in role.sections("allows"):
            _allow(allow, findings)


def _pipelines(root: Section, findings: Diagnostics) -> None:
    for pipeline in root.sections("pipelines"):
        if pipeline.values.get("autostart") and not pipeline.text("token_file"):
            findings.warning(
                pipeline.line,
                "Pipeline",
                f"{pipeline.text('name')} starts with the server, which requires authentication",
                "add <TokenFile> with a token of a user who may read and write what it does, "
                "unless SOW_TOKEN holds one",
            )


def _ways(root: Section, security: Section, authentication: Section, findings: Diagnostics) -> None:
    tls = security.values.get("tls")
    if not any(way in authentication.values for way in WAYS) and not authentication.lines:
        findings.error(
            authentication.line,
            "Authentication",
            "has no method to authenticate users",
            f"add one of {', '.join(WAYS.values())}",
        )
    has_ca = isinstance(tls, Section) and "client_ca" in tls.values
    requires_certificates = "client_certificates" in authentication.values
    if requires_certificates and not has_ca:
        findings.error(
            *authentication.where("ClientCertificates"),
            "needs the authority that signs them",
            "add <ClientCA> to TLS",
        )
    if has_ca and not requires_certificates:
        assert isinstance(tls, Section)
        findings.error(
            *tls.where("ClientCA"),
            "is trusted, and no certificate is requested",
            "add <ClientCertificates/> to Authentication, or remove it",
        )
    if tls is None and not is_loopback(root.text("host") or HOST_DEFAULT):
        findings.warning(
            authentication.line,
            "Authentication",
            "lets clients send passwords and tokens in clear text, readable by anyone on the path",
            "add <TLS>, unless a proxy in front encrypts",
        )


def _unique(roles: list[Section], findings: Diagnostics) -> None:
    lines: dict[str, FileLine] = {}
    for role in roles:
        name, line = role.text("name"), role.line_of("Name")
        if name and name in lines:
            message = f"the name {name!r} is already used in {at(lines[name], line)}"
            findings.error(line, "Name", message, "give it another, or put both into one role")
        lines.setdefault(name, line)


def _allow(allow: Section, findings: Diagnostics) -> None:
    named = "topic" in allow.values or "Topic" in allow.lines
    about_topics = [verb for verb in OF_TOPICS if verb in allow.values]
    others = [verb for verb in ("admin", "impersonate") if verb in allow.values]
    has_verb = any(verb.capitalize() in allow.lines for verb in VERBS)
    if not has_verb and not allow.refused:
        findings.error(
            allow.line, "Allow", "allows nothing", "add <Read/>, <Write/>, <Delete/> or <Admin/>"
        )
    if about_topics and not named:
        findings.error(
            allow.line,
            "Allow",
            f"does not name the topics that it allows to {about_topics[0]}",
            "add <Topic>orders</Topic>, or <Topic>.*</Topic> for all",
        )
    if others and named:
        findings.error(
            *allow.where("Topic"),
            f"has no effect on {others[0].capitalize()}, which is about no topic",
            "write an Allow for each",
        )
    for element, verbs in NEEDS.items():
        field = element.lower()
        if field in allow.values and not any(verb in allow.values for verb in verbs):
            findings.error(
                *allow.where(element),
                f"is in an Allow without {' or '.join(_tags(verbs))}, so it has no effect",
                f"add {' or '.join(_tags(verbs))}, or remove it",
            )


def _tags(verbs: Iterable[str]) -> list[str]:
    return [f"<{verb.capitalize()}/>" for verb in verbs]


# An open server listens beyond loopback without authentication. `sow check` reports it as an error;
# yet it may be intended, in a network that is protected by other means. So it does not make a file
# invalid: the caller that starts a server passes the effective address to `exposed`, and refuses or
# warns.


def exposed(host: str, security: Security) -> tuple[str, str] | None:
    """The reason not to listen at `host`, and the remedy; None if there is none."""
    if is_loopback(host) or security.authentication is not None:
        return None
    return (
        f"{host} is not loopback, and there is no authentication: anyone who can reach it may "
        "read, publish and delete",
        "add <Security> with <Authentication> and <Role>, or listen on 127.0.0.1; or run sow "
        "serve --insecure if this is meant",
    )


def exposure(configuration: Configuration, line: FileLine) -> Finding | None:
    """The finding about the address in a file, at the line of its Listen."""
    wrong = exposed(configuration.host, configuration.security)
    return Finding(line.file, int(line), "Listen", "error", *wrong) if wrong else None


# The fields of a topic's records are unknown in advance. Those of a view's rows are known: a Filter
# or Check over a field that they lack would hide all of them without a reason. A conflated topic
# has the fields of its underlying topic.


def check_guards(root: Section, roles: Iterable[Section], findings: Diagnostics) -> None:
    """Apply the rules to the Allows of roles."""
    fields = _fields_of(root)
    for role in roles:
        for allow in role.sections("allows"):
            for element in ("Filter", "Check"):
                _knows_fields(allow, element, fields, findings)


def _fields_of(root: Section) -> Mapping[str, list[Path]]:
    """The fields of rows of views, and of their copies, by the names of these."""
    found: dict[str, list[Path]] = {}
    for topic in root.sections("topics"):
        name, projection = topic.text("name"), topic.values.get("projection")
        if isinstance(projection, Section):
            try:
                texts = projection.texts("fields")
                found[name] = [parse_projected(text).target for text in texts]
            except ClientError:
                continue  # it is reported by the rules of views
        elif topic.text("underlying") in found:
            found[name] = found[topic.text("underlying")]
    return found


def _knows_fields(
    allow: Section, element: str, fields: Mapping[str, list[Path]], findings: Diagnostics
) -> None:
    text, expression = allow.text(element.lower()), allow.text("topic")
    if not text or not expression:
        return
    names = re2.compile(expression)
    for name, there in fields.items():
        if not names.fullmatch(name):
            continue
        for path in paths_in(read_condition(text)):
            if not any(_meet(path.steps, one.steps) for one in there):
                findings.error(
                    *allow.where(element),
                    f"refers to {path}, which rows of the view {name!r} do not have, so that it "
                    "would pass none of them",
                    "add the field to its Projection, or name it in an Allow of its own",
                )
                return


def _meet(some: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether one path is, or leads to, the other."""
    size = min(len(some), len(other))
    return some[:size] == other[:size]
