"""What of others' work is part of the console: which files of which packages, and how they come.

`python -m tests.server.vendored` packs the versions that stand below with npm, puts their files
into `sow/server/console/vendored` and writes down what each one is (`SHA256SUMS`). Nothing is
changed in them. To go to another version, change its number here and run it; `test_vendored.py`
compares.
"""

import hashlib
import subprocess
import tarfile
import tempfile
from pathlib import Path

PLACE = Path(__file__).parents[2] / "sow/server/console/vendored"
SUMS = PLACE / "SHA256SUMS"

PACKAGES = {
    "htm@3.1.1": {
        "preact/standalone.module.js": "htm-preact.js",
        "LICENSE": "htm.LICENSE",
    },
    # The file above holds preact as well, and does not bring its licence.
    "preact@10.5.14": {"LICENSE": "preact.LICENSE"},
    "@preact/signals-core@1.14.5": {
        "dist/signals-core.module.js": "signals-core.js",
        "LICENSE": "signals-core.LICENSE",
    },
    "regular-table@0.9.2": {
        "dist/esm/regular-table.js": "regular-table.js",
        "dist/css/container.css": "regular-table.css",
        "LICENSE": "regular-table.LICENSE",
    },
    "uplot@1.6.32": {
        # The module is three times as large: nobody has minified it.
        "dist/uPlot.iife.min.js": "uplot.js",
        "dist/uPlot.min.css": "uplot.css",
        "LICENSE": "uplot.LICENSE",
    },
}
"""Files of each package, and what they are called here."""


def taken():
    """The names of all files, as they stand in the folder."""
    return sorted(name for files in PACKAGES.values() for name in files.values())


def sums():
    """A line for each file, in the form that `sha256sum --check` reads."""
    return "".join(
        f"{hashlib.sha256((PLACE / name).read_bytes()).hexdigest()}  {name}\n" for name in taken()
    )


def pack(package, directory):
    """The archive of a package, from npm."""
    command = ["npm", "pack", "--silent", package]
    made = subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True)
    return Path(directory) / made.stdout.split()[-1]


def main():
    PLACE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        for package, files in PACKAGES.items():
            with tarfile.open(pack(package, directory)) as archive:
                for inside, name in files.items():
                    found = archive.extractfile(f"package/{inside}")
                    assert found is not None, f"{package} has no {inside}"
                    (PLACE / name).write_bytes(found.read())
    SUMS.write_text(sums())


if __name__ == "__main__":
    main()
