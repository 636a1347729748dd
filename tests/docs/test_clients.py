"""docs/clients.md names every method of both surfaces of the client, with all its parameters."""

import inspect
import re

import pytest

from sow.client import client as asynchronous
from sow.client import http, live_view, publisher, subscription, sync
from sow.client.sync.bridge import TopicAnswer
from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs/clients.md").read_text()
CLASSES = {
    "Client": (asynchronous.Client, sync.Client),
    "Subscription": (subscription.Subscription, sync.Subscription),
    "Answer": (http.Answer, TopicAnswer),
    "Rows": (http.Rows, sync.Rows),
    "Publisher": (publisher.Publisher, sync.Publisher),
    "Http": (http.Http, sync.Http),
    "Live": (live_view.Live, sync.Live),
    "LiveWindow": (live_view.LiveWindow, sync.LiveWindow),
}
OF_A_MAPPING = {"get", "keys", "values", "items"}
OWN = {"table"}
"""What makes the tables of an answer: they are asked for by other methods."""


def shown(kind, name):
    """A name as the page has it: with the names of its parameters, if it takes any."""
    member = getattr(kind, name, None)
    if not inspect.isfunction(member):
        return name
    text, by_name = [], False
    for parameter in list(inspect.signature(member).parameters.values())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY and not by_name:
            text.append("*")
            by_name = True
        text.append(parameter.name)
    return f"{name}({', '.join(text)})"


def public(kind):
    """All that a user can call or read of a class."""
    ours = [one for one in kind.__mro__ if one.__module__.startswith("sow.")]
    set_there = re.findall(r"self\.(\w+)(?::[^=]+)? = ", "".join(map(inspect.getsource, ours)))
    own = OWN if kind is http.Answer else {"awaited"}
    return {name for name in [*dir(kind), *set_there] if not name.startswith("_")} - own


def documented(name):
    (section,) = re.findall(rf"^### {name}\n(.*?)(?=^##)", PAGE, re.M | re.S)
    cells = re.findall(r"^\| (`[^|]*`) \|", section, re.M)
    rows = [row for cell in cells for row in re.findall(r"`([^`]*)`", cell)]
    if "[`Live`](#live) but the methods of a mapping" in section:
        rows += [row for row in documented("Live") if row.partition("(")[0] not in OF_A_MAPPING]
    return rows


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("surface", [0, 1], ids=["asyncio", "plain"])
def test_every_method_stands_on_the_page_with_its_parameters(name, surface):
    kind = CLASSES[name][surface]
    rows = documented(name)
    assert len(rows) == len(set(rows))
    assert set(rows) == {shown(kind, one) for one in public(kind)}


@pytest.mark.parametrize("name", CLASSES)
def test_help_says_something_of_each_of_them(name):
    for kind in CLASSES[name]:
        for one in public(kind):
            member = getattr(kind, one, None)
            if inspect.isfunction(member) and member.__module__.startswith("sow."):
                assert member.__doc__, (kind, one)
