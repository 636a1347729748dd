"""Raw results: what one run has measured, every repetition, as a file in docs/results.

There is a file for each part of docs/performance.md, of its last run; `page` makes the part of it
and of nothing else. It says on what kind of machine, with which versions and how long it was
measured, and not where.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

FOLDER = Path(__file__).parents[2] / "docs" / "results"
DIGITS = 8
"""Significant ones; no clock and no repetition gives more."""

Measured = TypeVar("Measured")


class Run(msgspec.Struct, Generic[Measured], frozen=True):
    """One run: `facts` are the machine and versions, `took_s` is how long each benchmark took;
    `apart` are those that were measured again since, each with when and at which version."""

    size: str
    facts: Mapping[str, str]
    took_s: Mapping[str, float]
    measured: Sequence[Measured]
    apart: Mapping[str, str] = {}


def save(path: Path, run: Run[Any]) -> None:
    """Write a run, one measured thing to a line."""
    plain = msgspec.to_builtins(run)
    lines = [json.dumps(rounded(one), ensure_ascii=False) for one in plain.pop("measured")]
    head = json.dumps(rounded(plain), ensure_ascii=False, indent=1).removesuffix("\n}")
    text = f'{head},\n "measured": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def load(path: Path, kind: type[Measured]) -> Run[Measured]:
    """Read what was measured of one kind."""
    return msgspec.json.decode(path.read_bytes(), type=Run[kind])  # type: ignore[valid-type]


def put_in(kept: Run[Any], again: Run[Any]) -> Run[Any]:
    """A run that is kept, in which what was measured again stands in place of what it was."""
    if kept.size != again.size:
        raise SystemExit(f"what is kept is of another size, {kept.size}: measure all of it")
    found: dict[str, list[Any]] = {}
    for one in again.measured:
        found.setdefault(one.subject, []).append(one)
    measured = []
    for one in kept.measured:
        if one.subject not in found:
            measured.append(one)
        elif found[one.subject]:
            measured += found[one.subject]
            found[one.subject] = []
    where = [again.facts[name] for name in ("date", "SOW", "processor") if name in again.facts]
    when = ", ".join(where)
    return Run(
        kept.size,
        kept.facts,
        {**kept.took_s, **again.took_s},
        [*measured, *chain.from_iterable(found.values())],
        {**kept.apart, **dict.fromkeys(again.took_s, when)},
    )


def rounded(value: Any) -> Any:
    """The same with as many digits as count."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one) for one in value]
    return value
