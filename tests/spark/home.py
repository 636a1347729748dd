"""A SPARK_HOME in which Python starts fast."""

from pathlib import Path


def fast_home(directory: Path) -> Path:
    """A SPARK_HOME without the archive of PySpark's own modules, which each Python that Spark
    starts would compile once more, for a second or longer: they find the modules as installed.

    Spark waits ten seconds for a Python that it has started, which is little on a busy machine."""
    import pyspark

    for part in Path(pyspark.__file__).parent.iterdir():
        if part.name != "python":
            (directory / part.name).symlink_to(part)
    return directory
