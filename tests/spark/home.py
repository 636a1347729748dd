"""A SPARK_HOME in which Python starts fast, and a Python that forks fast."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHON = f"""#!/bin/sh
if [ "$2" = pyspark.daemon ]; then
    shift 2
    PYTHONPATH="{ROOT}:$PYTHONPATH" exec "{sys.executable}" -m tests.spark.daemon "$@"
fi
exec "{sys.executable}" "$@"
"""


def fast_home(directory: Path) -> Path:
    """A SPARK_HOME without the archive of PySpark's own modules, which each Python that Spark
    starts would compile once more, for a second or longer: they find the modules as installed.

    Spark waits ten seconds for a Python that it has started, which is little on a busy machine."""
    import pyspark

    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name != "python":
            (directory / part.name).symlink_to(part)
    return directory


def forking_python(directory: Path) -> Path:
    """A Python whose daemons are ours (`daemon.py`), also those that plan reads and writes: for
    them Spark has no setting."""
    python = directory / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    return python
