"""``python -m sow``: the command line, where no `sow` is on the path."""

from sow.cli.main import main

main(prog_name="python -m sow")
