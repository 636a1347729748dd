"""Parts and rows of the log, cut and read in one step."""

from sow.core.cooperative import run_to_completion
from sow.history.log_rows import cutting, log_pieces


def extent(*requested):
    """The part of the log that `cutting` finds."""
    return run_to_completion(cutting(*requested))


def log_rows(*requested):
    """The rows of `log_pieces`."""
    return (rows for rows in log_pieces(*requested) if rows is not None)
