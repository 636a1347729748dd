"""Findings about a config.xml, collected, so that a reader sees every mistake and not only one.

`MistakeError` is raised by code that reads one value and does not know its place; the caller that
does turns it into a `Finding`. Nothing here knows what an element means.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sow.core.definitions import Configuration

Severity = Literal["error", "warning"]


class MistakeError(Exception):
    """A value that cannot be used: what is wrong, what to write instead, and the 0-based
    character of the value at which it breaks."""

    def __init__(self, message: str, instead: str = "", *, position: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.instead = instead
        self.position = position


class FileLine(int):
    """The number of a line that knows its file, as findings call it, since a configuration may be
    several files."""

    file: str

    def __new__(cls, number: int, file: str = "") -> "FileLine":
        """The line `number` of `file`."""
        line = super().__new__(cls, number)
        line.file = file
        return line

    def below(self, lines: int) -> "FileLine":
        """The line so many `lines` further down."""
        return FileLine(self + lines, self.file)


def file_of(line: int) -> str:
    """The file of a line; empty where only a number is known."""
    return line.file if isinstance(line, FileLine) else ""


def at(other: int, seen_from: int) -> str:
    """The name of `other` in a finding about the line `seen_from`: its file is named where it is
    another one."""
    place = file_of(other)
    return f"line {other}" if place == file_of(seen_from) else f"line {other} of {place}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One message to the operator, at a line and an element of a file."""

    file: str
    line: int
    element: str
    severity: Severity
    message: str
    instead: str = ""

    @property
    def place(self) -> str:
        """Its place: file, line and element."""
        return f"{self.file}:{self.line}: {self.element}"

    @property
    def advice(self) -> str:
        """The message and the remedy, without the place."""
        return f"{self.message}; {self.instead}" if self.instead else self.message

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.element}: {self.advice}"

    @property
    def labelled(self) -> str:
        """The same with the severity before what is wrong, for where both kinds are listed."""
        return f"{self.file}:{self.line}: {self.element}: {self.severity}: {self.advice}"


@dataclass(frozen=True, slots=True)
class Reviewed:
    """A configuration file as somebody may look at it, whether or not it can be used."""

    file: str
    text: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration file as read: `configuration` is None when any finding is an error.

    `exposure` is an error of another kind: the file is valid, and runs only if the operator
    confirms that the server is to be open.
    """

    configuration: Configuration | None
    findings: tuple[Finding, ...]
    exposure: Finding | None = None

    @property
    def checked(self) -> "Loaded":
        """The same with `exposure` among the findings, as for a file that is not to be run so."""
        if self.exposure is None:
            return self
        return Loaded(None, in_order((*self.findings, self.exposure)))

    def with_errors(self, errors: Sequence[Finding]) -> "Loaded":
        """The same with what somebody else has found wrong."""
        if not errors:
            return self
        return Loaded(None, in_order((*self.findings, *errors)))

    def with_warnings(self, warnings: Sequence[Finding]) -> "Loaded":
        """The same with warnings of what the file does not show."""
        return Loaded(self.configuration, in_order((*self.findings, *warnings)), self.exposure)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that keep the server from starting."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that it starts with all the same."""
        return tuple(finding for finding in self.findings if finding.severity == "warning")


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings file by file, and by line in each."""
    return tuple(sorted(findings, key=lambda finding: (finding.file, finding.line)))


class Diagnostics:
    """Collects the findings of one configuration; `file` is the one that may include others."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: list[Finding] = []

    def error(self, line: int, element: str, message: str, instead: str = "") -> None:
        """Something the server cannot start with."""
        self._add(line, element, "error", message, instead)

    def warning(self, line: int, element: str, message: str, instead: str = "") -> None:
        """Something that will not do what its writer may expect."""
        self._add(line, element, "warning", message, instead)

    def _add(self, line: int, element: str, severity: Severity, message: str, instead: str) -> None:
        file = file_of(line) or self.file
        self._found.append(Finding(file, int(line), element, severity, message, instead))

    def has_errors(self) -> bool:
        """Whether the file is unusable."""
        return any(finding.severity == "error" for finding in self._found)

    def in_order(self) -> tuple[Finding, ...]:
        """Everything found, by file and line."""
        return in_order(self._found)


def halves(detail: str) -> tuple[str, str]:
    """The detail of a `SowError` as what is wrong and what to write instead."""
    wrong, _, instead = detail.partition("; ")
    return wrong, instead
