"""What pyproject.toml has no word for: README as it stands in the metadata of a package.

An index shows that page without the files beside it, and SOW has no public address to link to. So a
link to a file of the source becomes the file's name, and a picture is left out.

The inner loops in C are optional: without a compiler setuptools warns, and those in Python are used
(docs/decisions/040-inner-loops.md).
"""

import re
from pathlib import Path

from setuptools import Extension, setup

PICTURE = re.compile(r"^!\[[^\]]*\]\([^)]*\)\n+", re.M)
LINK_TO_A_FILE = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)]*)\)")

page = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
setup(
    long_description=LINK_TO_A_FILE.sub(r"\1 (`\2`)", PICTURE.sub("", page)),
    long_description_content_type="text/markdown",
    ext_modules=[
        Extension(
            "sow.core._inner_loops",
            ["sow/core/_inner_loops.c", "sow/core/_key_index.c"],
            extra_compile_args=["-g0"],  # a build says nothing of where it was made
            optional=True,
        ),
    ],
)
