"""``python -m sow.cli``, where no `sow` is on the path."""

from sow.cli.main import main

main()
