"""How the options of a command are written: ``oof,top_n=10,conflation_key=[/a,/b]``.

The table of `sow.protocol.commands` lists the options and the syntax of their values; a kind of
value is parsed in one place, for a line's `opts` and for parameters over HTTP.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from conflated_topics.user_texts import IntervalError, interval_us
from sow.core.comma_lists import expressions_end, read_expressions, read_list, split_list
from sow.core.humanize import did_you_mean
from sow.errors import ClientError, NotAvailable, TooLarge, clipped, shown
from sow.protocol.commands import OPTIONS, OPTIONS_IGNORED, OPTIONS_LATER, Option, Options, Value

_EXPRESSIONS = re.compile(
    rf"(?:^|,)\s*({'|'.join(n for n, one in OPTIONS.items() if one.value == 'expressions')})=\["
)
"""Where an option begins that is a list of expressions."""
CONFLATION_US_MIN = 10_000
"""The shortest interval of a subscription: its deliveries gather within a tenth of it, and an event
loop cannot be relied on to wake at anything finer than a millisecond."""


def read_options(text: str) -> Options:
    """Read `opts`. Raises ClientError, TooLarge or NotAvailable, naming the option."""
    words = [*_words(text)]
    options = Options(ignored=_ignored(words))
    for word in words:
        name, equals, value = word.partition("=")
        if name in OPTIONS_LATER:
            raise NotAvailable(f"option {name} is not available yet")
        if name in OPTIONS_IGNORED:
            continue
        option = OPTIONS.get(name)
        if option is None:
            raise _invalid(f"no option {shown(name)}{did_you_mean(name, OPTIONS)}")
        if option.value != "flag":
            setattr(options, name, read_value(option, value))
        elif equals:
            raise _invalid(f"option {name} takes no value")
        else:
            setattr(options, name, True)
    return options


def _ignored(words: Iterable[str]) -> tuple[str, ...]:
    names = dict.fromkeys(word.partition("=")[0] for word in words)
    return tuple(name for name in names if name in OPTIONS_IGNORED)


def _words(text: str) -> Iterator[str]:
    """The options as written. In a list of expressions, commas inside parentheses and quotes do not
    separate."""
    start = 0
    while found := _EXPRESSIONS.search(text, start):
        end = expressions_end(text, found.end())
        if end < 0:
            raise _invalid(f"option {found[1]} has no closing ]")
        yield from _others(text[start : found.start()], behind=start > 0)
        yield text[found.start(1) : end + 1]
        rest = text[end + 1 :].lstrip()
        if rest and not rest.startswith(","):
            raise _invalid(
                f"{shown(rest)} behind {found[1]}=[...] is not understood; write a comma"
            )
        start = len(text) - len(rest)
    yield from _others(text[start:], behind=start > 0)


def _others(text: str, behind: bool) -> list[str]:
    """The options of a part of the text; `behind`: the part follows a comma."""
    if not behind or not text:
        return split_list(text)
    # With something in front an empty option is found as well.
    return split_list(f"…{text}")[1:]


def read_value(option: Option, text: str) -> object:
    """The value of an option that is no flag. Raises ClientError or TooLarge, naming the option."""
    return READERS[option.value](option, text)


def _invalid(detail: str) -> ClientError:
    return ClientError(detail, reason="invalid options")


def _count(option: Option, text: str) -> int:
    name = option.name
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise _invalid(f"option {name}={shown(text)} must be a whole number such as {name}=10")
    return int(text)


def _list(option: Option, text: str) -> tuple[str, ...]:
    members = read_list(text)
    if option.members_max is not None and len(members) > option.members_max:
        raise TooLarge(
            f"{option.name} names {len(members)} fields, and {option.members_max} are the most"
        )
    return members


def _expressions(option: Option, text: str) -> tuple[str, ...]:
    members = read_expressions(text)
    if option.members_max is not None and len(members) > option.members_max:
        raise TooLarge(
            f"{option.name} has {len(members)} members, and {option.members_max} are the most"
        )
    return members


def _interval(option: Option, text: str) -> int | Literal["auto"] | None:
    """An interval in microseconds, ``auto``, or None for ``none``."""
    if text in ("auto", "none"):
        return "auto" if text == "auto" else None
    written = f"{option.name}={clipped(text)}"
    try:
        read_us = interval_us(text)
    except IntervalError as error:
        raise _invalid(f"{written}: {error.wrong}; {error.instead}, auto or none") from None
    if read_us < CONFLATION_US_MIN:
        raise _invalid(
            f"{written} is shorter than {CONFLATION_US_MIN // 1000}ms; write a longer interval, "
            "auto or none"
        )
    return read_us


def _choice(option: Option, text: str) -> str:
    if text not in option.choices:
        raise _invalid(
            f"{option.name}={clipped(text)} is not known; write {' or '.join(option.choices)}"
        )
    return text


def _moment(option: Option, text: str) -> str:
    if not text.strip():
        raise _invalid(
            f"option {option.name} is empty; write a bookmark, or a time such as "
            f"{option.name}=20261121T093000Z"
        )
    return text


READERS: dict[Value, Callable[[Option, str], object]] = {
    "count": _count,
    "list": _list,
    "expressions": _expressions,
    "interval": _interval,
    "choice": _choice,
    "moment": _moment,
}
