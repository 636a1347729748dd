"""SOW as others have it: installed from a wheel, in a Python that does not see this checkout.

What SOW needs is taken from the Python that runs the tests, by a line that only adds a directory:
the editable installation there, which would lead to the checkout, is not followed.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEPENDENCIES = "dependencies.pth"


def python_with_wheel(directory: Path) -> Path:
    """Build the wheel, and make a Python that has it."""
    wheels, environment = directory / "wheels", directory / "environment"
    _run("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, ROOT)
    _run("-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    paths = {"base": str(environment), "platbase": str(environment)}
    site = Path(sysconfig.get_path("purelib", "venv", paths))
    (wheel,) = wheels.glob("*.whl")
    _run("-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel)
    (site / DEPENDENCIES).write_text(sysconfig.get_path("purelib") + "\n")
    return python


def _run(*words: object) -> None:
    # From elsewhere: a folder called like a module must not stand in its place.
    subprocess.run([sys.executable, *map(str, words)], check=True, cwd=ROOT.parent)
