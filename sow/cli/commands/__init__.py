"""The commands of `sow`, which `sow.cli.main` lists: a module for each, or for one subject."""
