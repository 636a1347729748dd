"""Shared logs on engines that others operate: one adapter each, and what of its settings loses.

    nats, and its settings       a stream of NATS JetStream
    postgres, postgres_safety    a table of PostgreSQL with synchronous standbys
    kafka, kafka_safety          a topic of Kafka
    s3, s3_objects               numbered objects of S3, or of what is like it
    appender                     what waits goes together
    ending                       what goes on is ended, in a limited time

An adapter does what `sow.shared_log.protocol` says and nothing more. Its library is an extra of its
own; who has no shared log needs none of them, so it is imported by name.
"""

from importlib import import_module
from types import ModuleType

from sow.errors import ConfigError

ENGINES = ("nats", "postgres", "kafka", "s3")


def adapter(engine: str) -> ModuleType:
    """The module of an engine; raises ConfigError where its library is not installed."""
    try:
        return import_module(f"{__name__}.{engine}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("sow."):
            raise
        raise ConfigError(
            f"<Log><Engine>{engine}</Engine> needs {error.name}, which is not installed here: "
            f"pip install 'sow[{engine}]', or leave <Log> out for a log on this machine"
        ) from None
