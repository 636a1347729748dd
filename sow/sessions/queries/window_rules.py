"""Window rules: when a subscription keeps to a live window, and what no window can do.

Nothing here looks at topics or records: a command is enough.
"""

from sow.errors import ClientError, TooLarge, shown
from sow.expressions import Filter, Trait, check_deterministic
from sow.protocol.commands import Command
from sow.streaming.update_encoder import WindowKey

END_MAX = 2_000
"""Records up to which a window may reach. All of them are kept in order while they change, and read
in one step when they are not known: ten milliseconds for so many, fifty for five times as many."""


def window_of(command: Command) -> WindowKey | None:
    """The window that a subscription keeps to, if it does; raises ClientError."""
    options = command.options
    if options.live and options.top_n is None:
        raise ClientError(
            "a live window needs top_n, the number of records that it has room for; write for "
            "example top_n=50, or leave out live",
            reason="invalid options",
        )
    if options.top_n is None or not (options.live or options.skip_n is not None):
        if options.positions:
            raise ClientError(
                "positions are places in a live window; write for example live,top_n=50,positions "
                "with sow_and_subscribe",
                reason="invalid options",
            )
        return None
    return WindowKey(command.order_by, options.skip_n or 0, options.top_n, options.positions)


def check_window(
    command: Command, window: WindowKey, condition: Filter | None, is_pattern: bool
) -> None:
    """Raise ClientError or TooLarge for what no window can do. `condition` is the command's filter;
    `is_pattern`: it names topics by a pattern."""
    if command.key is not None or command.keys is not None:
        raise ClientError(
            "a live window is a stretch of all records that match; leave out keys, or name them in "
            "the filter by SOW_KEY()",
            reason="invalid options",
        )
    if command.options.conflation_key:
        raise ClientError(
            "a live window is about single records, and conflates who is in it; leave out "
            "conflation_key",
            reason="invalid options",
        )
    if is_pattern:
        raise ClientError(
            f"a live window is over one topic, and {shown(command.topic)} is a pattern; name the "
            "topic, or add the option non_regex_topic",
            reason="invalid options",
        )
    if window.end > END_MAX:
        raise TooLarge(
            f"skip_n and top_n come to {window.end}, and a live window reaches up to {END_MAX} "
            "records; narrow the filter, or request records further down with sow"
        )
    if condition is None:
        return
    check_deterministic(condition, "a live window")
    if Trait.BOOKMARK in condition.traits:
        raise ClientError(
            "BOOKMARK() is known of what is published and not of records that stand; a live window "
            "cannot go by it",
            reason="bad filter",
        )
