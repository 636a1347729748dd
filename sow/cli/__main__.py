"""``python -m sow.cli``, for machines without `sow` on the path."""

from sow.cli.main import main

main()
