"""README's two commands as on a bare machine: only Python, git, make and the base tools are found.

    python3 -m tests.bare              both, in a clone of the last commit (make bare)
    python3 -m tests.bare COMMAND ...  any command, in this folder

The command has a PATH of links to the programs below, a HOME that is empty, and no other variable.
So there is no browser, Java, Node, curl or compiler, whatever this machine has. Nothing here needs
more than Python itself.
"""

import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
BASE = """\
[ arch awk b2sum base32 base64 basename bash cat chgrp chmod chown chroot cksum clear cmp comm cp
csplit cut date dd df diff dir dircolors dirname du echo egrep env expand expr factor false fgrep
find flock fmt fold getconf getopt grep groups gunzip gzip head hostid hostname iconv id install
ionice join kill ldd link ln locale logger logname ls lscpu md5sum mkdir mkfifo mknod mktemp more
mount mv nice nl nohup nproc numfmt od paste pathchk perl pidof pinky pr printenv printf prlimit
ptx pwd readlink realpath renice rev rm rmdir script sed seq setpriv setsid sh sha1sum sha256sum
sha512sum shred shuf sleep sort split stat stdbuf stty sum sync tac tail tar taskset tee tempfile
test timeout touch tput tr true truncate tset tsort tty umount uname unexpand uniq unlink unshare
users vdir wc which who whoami xargs yes zcat zgrep
"""
"""What Debian's essential packages bring; a system that lacks one of them goes without it."""
ADDED = ("git", "make")
COMMANDS = (("make", "demo", "DEMO=--seconds 5 --port 0"), ("make", "test"))


def bare_path(folder: Path) -> Path:
    """A directory with links to the programs of a bare machine."""
    folder.mkdir()
    for name in (*BASE.split(), *ADDED):
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    # No link, for an environment that is made by it refers to it, and outlives this folder. And not
    # that of an environment: a machine has none before `make` makes it.
    python = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    (folder / "python3").write_text(f'#!/bin/sh\nexec {shlex.quote(str(python))} "$@"\n')
    (folder / "python3").chmod(0o755)
    return folder


def bare_environment(folder: Path) -> Mapping[str, str]:
    """All variables that a command has there."""
    home = folder / "home"
    home.mkdir()
    return {"PATH": str(bare_path(folder / "bin")), "HOME": str(home), "LANG": "C.UTF-8"}


def main(words: Sequence[str]) -> int:
    """Run a command, or README's two in a clone; returns how it ended."""
    with tempfile.TemporaryDirectory(prefix="sow-bare-") as made:
        place, variables = ROOT, bare_environment(Path(made))
        if not words:
            place = Path(made) / "sow"
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(place)], check=True)
        for command in [words] if words else COMMANDS:
            print("$", *command, flush=True)
            # Looked up by hand, for the PATH that counts is the one that the command has.
            program = shutil.which(command[0], path=variables["PATH"]) or command[0]
            done = subprocess.run([program, *command[1:]], cwd=place, env=variables, check=False)
            if done.returncode:
                return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
