"""SOW: an open state-of-the-world server.

The current value of every keyed record, queried with content filters, followed live, and
followed at a bounded rate through conflated topics. Importing this package loads no network
or disk library; the edges (`sow.server`, `sow.client`, `sow.cli`) do so on their own.
"""

__version__ = "0.1.0"
