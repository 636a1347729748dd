"""Actions as config.xml has them: what sets one off, and what is done then.

The names are those of the modules of AMPS, without ``amps-action-on-`` and ``amps-action-do-``.
What an action does is decided by `sow.sessions.commands.actions`; this is plain data.
"""

from dataclasses import dataclass
from typing import Literal

TriggerKind = Literal[
    "schedule", "startup", "shutdown", "publish-message", "sow-expire-message", "oof-message",
    "slow-client",
]  # fmt: skip
DeedKind = Literal["publish-message", "delete-sow", "echo-message", "webhook"]
OofType = Literal["all", "match", "delete", "expire"]

AMPS_DATA, AMPS_TOPIC, AMPS_SOW_KEY = "AMPS_DATA", "AMPS_TOPIC", "AMPS_SOW_KEY"
OF_MESSAGES = frozenset({AMPS_DATA, AMPS_TOPIC, AMPS_SOW_KEY})
VARIABLES: dict[str, frozenset[str]] = {
    "schedule": frozenset(),
    "startup": frozenset(),
    "shutdown": frozenset(),
    "publish-message": OF_MESSAGES,
    "sow-expire-message": OF_MESSAGES,
    "oof-message": OF_MESSAGES,
    "slow-client": frozenset({AMPS_DATA}),
}
"""What is known where an action is set off; a slow client is a sentence."""


@dataclass(frozen=True, slots=True)
class ActionTrigger:
    """What sets an action off. `name` is that of the action, made of its place where it has
    none."""

    kind: TriggerKind
    name: str = ""
    every: str | None = None
    topic: str | None = None
    message_type: str | None = None
    filter: str | None = None
    type: OofType = "all"


@dataclass(frozen=True, slots=True)
class ActionDeed:
    """One thing that an action does; texts may have variables, `{{AMPS_DATA}}`."""

    kind: DeedKind
    topic: str | None = None
    message_type: str | None = None
    data: str | None = None
    delta: bool = False
    filter: str | None = None
    message: str | None = None
    url: str | None = None
    timeout_us: int = 5_000_000
    retries: int = 3


@dataclass(frozen=True, slots=True)
class ActionDefinition:
    """An action: its deeds are done in order, and one that fails ends the run."""

    trigger: ActionTrigger
    deeds: tuple[ActionDeed, ...]
    line: int = 0

    @property
    def name(self) -> str:
        """What the audit and the log call it."""
        return self.trigger.name
