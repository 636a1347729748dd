"""The fast readers of JSON columns: a whole batch in one `decode_lines` call.

Few paths become nested msgspec structs that decode only the named fields of each record, and a
generated function that extracts them, with inline attribute access. That reader supports records
with named fields that are scalars or absent; anything else raises, and the caller reads the batch
value by value (`sow.messages.json`). With many paths, records are decoded whole, which is quicker
than filling so many attributes, and needs no generated code when a path is added.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from sow.core.paths import Path
from sow.messages.base import Column
from sow.messages.documents import document_columns

ColumnsReader = Callable[[bytes, int], list[Column]]
"""Reads columns from so many records joined by line feeds."""
Picker = Callable[[Sequence[object]], list[Column]]
"""Makes columns of records."""
GENERATED_PATHS_MAX = 32
"""Up to so many paths a generated reader is the quicker one, and made within a millisecond."""

# The nested names of a path set: {"order": {"id": None}, "px": None}.
Tree = dict[str, "Tree | None"]

# Beyond these a path is read slowly, so that types nest within reason.
STEPS_MAX = 32

LEAF = str | int | float | bool | None


class UnsuitedError(Exception):
    """These records, or these paths, are not for the fast reader."""


READ_FAILURES = (UnsuitedError, msgspec.MsgspecError, ValueError, RecursionError)
"""Raised by a `ColumnsReader` for records that it cannot read."""


def columns_reader(paths: tuple[Path, ...]) -> ColumnsReader | None:
    """A function of (joined records, how many) that reads `paths`; None if they do not suit."""
    if len(paths) > GENERATED_PATHS_MAX:
        return _reader(dict[str, Any], document_columns(paths))
    found = struct_reader(paths)
    return None if found is None else _reader(*found)


def struct_reader(paths: tuple[Path, ...]) -> tuple[type[msgspec.Struct], Picker] | None:
    """A struct of the fields that few paths name, and what picks their columns out of such
    records; None if they do not suit."""
    if len(paths) > GENERATED_PATHS_MAX:
        return None
    try:
        tree = _tree(paths)
        return _struct(tree), _picker([_attributes(tree, path.steps) for path in paths])
    except (UnsuitedError, ValueError):
        return None


def _reader(kind: Any, pick: Picker) -> ColumnsReader:
    decode_lines = msgspec.json.Decoder(kind).decode_lines

    def read(block: bytes, count: int) -> list[Column]:
        records = decode_lines(block)
        if len(records) != count:
            raise UnsuitedError
        return pick(records)

    return read


def _tree(paths: tuple[Path, ...]) -> Tree:
    """The paths as nested names; a field that is both value and container does not suit."""
    root: Tree = {}
    for path in paths:
        if path.index is not None or len(path.steps) > STEPS_MAX:
            raise UnsuitedError
        branch = root
        for step in path.steps[:-1]:
            below = branch.setdefault(step, {})
            if below is None:
                raise UnsuitedError
            branch = below
        if branch.setdefault(path.steps[-1], None) is not None:
            raise UnsuitedError
    return root


def _struct(tree: Tree) -> type[msgspec.Struct]:
    """A struct of the named fields; its attributes are f0, f1… since names may be anything.

    Raises ValueError for a name that msgspec cannot encode.
    """
    fields = []
    for number, below in enumerate(tree.values()):
        kind = LEAF if below is None else _struct(below) | None
        fields.append((f"f{number}", kind, None))
    names = {f"f{number}": step for number, step in enumerate(tree)}
    return msgspec.defstruct("Record", fields, rename=names, gc=False)


def _attributes(tree: Tree, steps: Sequence[str]) -> list[str]:
    """The attribute names that follow `steps` through the structs of a tree."""
    attributes = []
    for step in steps:
        attributes.append(f"f{list(tree).index(step)}")
        tree = tree[step] or {}
    return attributes


def _picker(chains: Sequence[Sequence[str]]) -> Picker:
    """A generated function from structs to columns, one per chain of attributes."""
    lines = [f"        [{_expression(chain)} for r in records]," for chain in chains]
    source = "\n".join(["def pick(records):", "    return [", *lines, "    ]"])
    namespace: dict[str, Picker] = {}
    exec(source, {}, namespace)
    return namespace["pick"]


def _expression(chain: Sequence[str]) -> str:
    """``r.f0``; or ``None if (x := r.f0) is None else x.f1`` for a field of a field."""
    source, guards = "r", []
    for attribute in chain[:-1]:
        guards.append(f"(x := {source}.{attribute}) is None")
        source = "x"
    value = f"{source}.{chain[-1]}"
    return f"None if {' or '.join(guards)} else {value}" if guards else value
