"""Commands of a session, carried out at once: what a server does in steps."""

from collections.abc import Sequence

from sow.core.cooperative import run_to_completion
from sow.protocol.publish_batching import Read
from sow.sessions.commands.executor import Executor
from sow.streaming.sessions import Session


def execute_all(
    executor: Executor, session: Session, commands: Sequence[Read], now_us: int
) -> None:
    """Carry out commands in order; plain publishes as a server carries them out."""
    if not executor.publish_at_once(session, commands, now_us):
        run_to_completion(executor.carry_out(session, commands, lambda: now_us))
