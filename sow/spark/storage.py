"""Storage that all machines of a Spark see, for files that its tasks write themselves.

It is a path that every machine has, or a place with a scheme that Arrow supports (s3, gs, abfs,
hdfs), with the keys that the machines have for it.
"""

from pyarrow import ArrowException
from pyarrow.fs import FileSystem, LocalFileSystem

from sow.core.pipelines import ARROW_SCHEMES, has_scheme
from sow.errors import ClientError


def opened(path: str, what: str) -> tuple[FileSystem, str]:
    """The file system of `path`, and the path within it; raises ClientError, which calls it `what`,
    for an unreachable place."""
    if not has_scheme(path):
        return LocalFileSystem(), path
    scheme, _, rest = path.partition(":")
    try:
        files, directory = FileSystem.from_uri(f"{ARROW_SCHEMES.get(scheme, scheme)}:{rest}")
    except (ArrowException, ValueError, OSError) as error:
        raise ClientError(
            f"{what} {path}: {error}; give a path that every machine has, or s3://…, gs://…, "
            "abfs://… or hdfs://…"
        ) from None
    return files, directory
