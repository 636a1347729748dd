"""Dead letters: rows that the server refuses, set aside on storage that all tasks see.

A task writes them to its own file in a directory of the batch. When the driver has committed the
batch, it moves the files of successful attempts to their final place and deletes the others. So the
rows of a failed attempt do not appear twice, and a batch that is written again replaces its files.
The names have the prefix that makes Spark skip unfinished files.
"""

import json
import posixpath
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from pyarrow.fs import FileType

from sow.spark.storage import opened


class DeadLetters:
    """The rows that a batch of one writer has set aside under `path`."""

    def __init__(self, path: str, topic: str, writer: str, epoch: int) -> None:
        self._files, self._directory = opened(path, "deadLetterPath")
        # Names of writers and topics are arbitrary, those of files are not.
        name = blake2b(f"{topic}\0{writer}".encode(), digest_size=6).hexdigest()
        self._batch = f"{name}-{epoch}"
        self._unfinished = posixpath.join(self._directory, f"_{self._batch}")

    def put(self, part: int, attempt: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Set all rows of one attempt aside: a file is written once."""
        self._files.create_dir(self._unfinished, recursive=True)
        lines = "".join(json.dumps(row, default=str) + "\n" for row in rows)
        with self._files.open_output_stream(self._of(part, attempt)) as file:
            file.write(lines.encode())

    def keep(self, part: int, attempt: str) -> None:
        """Move the rows of a successful attempt to their final place; idempotent."""
        if self._files.get_file_info(self._of(part, attempt)).type == FileType.File:
            kept = posixpath.join(self._directory, f"{self._batch}-{part}.ndjson")
            self._files.move(self._of(part, attempt), kept)

    def finish(self) -> None:
        """Delete the rows of other attempts."""
        if self._files.get_file_info(self._unfinished).type == FileType.Directory:
            self._files.delete_dir(self._unfinished)

    def _of(self, part: int, attempt: str) -> str:
        return posixpath.join(self._unfinished, f"{part}-{attempt}.ndjson")
