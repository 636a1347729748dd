"""A type checker and help() know the client: typos are reported before the program runs.

Both surfaces are checked by mypy as a user's program would be: with ``--strict``, and by what is
installed, `py.typed` included.
"""

import inspect
import pydoc
import re
import sys
from subprocess import run

import pytest

from sow.client import client, live_view, publisher, subscription, sync
from tests.docs.blocks import ROOT

RIGHT = {
    "awaited.py": """
        from datetime import timedelta
        from sow.client import Client, LiveWindow

        async def main() -> tuple[int, str, list[str]]:
            async with Client("http://localhost:1", token="t") as client:
                bookmark: str = await client.publish("t", [{"id": 1}, {"id": 2}])
                answer = await client.query("t", filter="/id = 1", order_by="/id", top_n=3)
                async with client.subscribe("t", conflation=timedelta(1), oof=True) as messages:
                    async for message in messages:
                        bookmark = message.bm or bookmark
                async with client.live("t", select=["/id"]) as live:
                    change = await live.change(1.5)
                async with client.live("t", order_by="/id", top_n=2) as window:
                    found: LiveWindow = window
                return answer.matches, change.key, found.keys
    """,
    "plain.py": """
        from datetime import timedelta
        from sow.client.sync import Client, LiveWindow

        def main() -> tuple[int, str, list[str]]:
            with Client("http://localhost:1", token="t") as client:
                bookmark: str = client.publish("t", [{"id": 1}, {"id": 2}])
                answer = client.query("t", filter="/id = 1", order_by="/id", top_n=3)
                with client.subscribe("t", conflation=timedelta(1), oof=True) as messages:
                    for message in messages:
                        bookmark = message.bm or bookmark
                with client.live("t", select=["/id"]) as live:
                    change = live.change(1.5)
                with client.live("t", order_by="/id", top_n=2) as window:
                    found: LiveWindow = window
                return answer.matches, change.key, found.keys
    """,
}
WRONG = {
    "client.pubish('t', {})": "has no attribute .pubish.",
    "client.query('t', fliter='1=1')": "Unexpected keyword argument .fliter.",
    "client.subscribe('t', oof='yes')": ".oof.( .*)? has incompatible type .str.; expected .bool.",
    "client.sow_and_subscribe('t', bookmark='1')": "Unexpected keyword argument .bookmark.",
    "client.publish(1, {})": "incompatible type .int.; expected .str.",
    "client.publish('t', {}, expires=1)": "Unexpected keyword argument .expires.",
    "client.live('t', order_by='/id')": "No overload variant|incompatible type",
    "client.live('t').chnage()": "has no attribute .chnage.",
    "client.delete('t', key='1')": "Unexpected keyword argument .key.",
    "client.publisher()": "Missing positional argument .topic.|Too few arguments",
}
SURFACES = ["sow.client", "sow.client.sync"]
PAIRS = [
    (client.Client, sync.Client),
    (publisher.Publisher, sync.Publisher),
    (subscription.Subscription, sync.Subscription),
    (live_view.Live, sync.Live),
    (live_view.LiveWindow, sync.LiveWindow),
]


def wrong_program(module):
    return "\n".join([f"from {module} import Client", "client = Client()", *WRONG, ""])


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """What mypy says of all the programs, line by line."""
    folder = tmp_path_factory.mktemp("programs")
    for name, text in RIGHT.items():
        (folder / name).write_text(inspect.cleandoc(text) + "\n")
    for module in SURFACES:
        (folder / f"wrong_{module.replace('.', '_')}.py").write_text(wrong_program(module))
    command = [sys.executable, "-m", "mypy", "--strict", "--hide-error-context", "--no-pretty"]
    command += ["--cache-dir", str(ROOT / ".mypy_cache")]  # what `make types` has found out
    programs = sorted(map(str, folder.glob("*.py")))
    done = run([*command, *programs], capture_output=True, text=True, cwd=folder)
    assert not done.stderr
    return done.stdout.splitlines()


def said_of(reported, program):
    found = {}
    for line in reported:
        place = re.search(rf"{re.escape(program)}:(\d+): error: (.*)", line)
        if place:
            found.setdefault(int(place[1]), []).append(place[2])
    return found


@pytest.mark.parametrize("program", RIGHT)
def test_a_program_that_is_right_passes(reported, program):
    assert said_of(reported, program) == {}


@pytest.mark.parametrize("module", SURFACES)
def test_what_is_wrong_is_sent_in_its_line(reported, module):
    found = said_of(reported, f"wrong_{module.replace('.', '_')}.py")
    for at, (text, says) in enumerate(WRONG.items(), 3):
        assert re.search(says, " ".join(found.get(at, ()))), (text, found.get(at))


def methods(kind):
    return {
        name: found
        for name, found in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def parameters(method):
    """What a method takes: names, kinds, defaults and types."""
    return list(inspect.signature(method).parameters.values())


@pytest.mark.parametrize(("awaited", "plain"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_surfaces_have_the_same_methods_with_the_same_parameters(awaited, plain):
    of_mappings = {"items", "values"}  # which are there with asyncio, too, and inherited
    assert methods(awaited).keys() - of_mappings == methods(plain).keys() - of_mappings
    for name in methods(awaited).keys() - of_mappings:
        there, here = methods(awaited)[name], methods(plain)[name]
        assert parameters(there) == parameters(here), name
        assert not any(one.kind is one.VAR_KEYWORD for one in parameters(here)), name


@pytest.mark.parametrize(("_awaited", "plain"), PAIRS, ids=lambda kind: kind.__name__)
def test_help_shows_signatures_and_words_without_asyncio(_awaited, plain):
    shown = pydoc.render_doc(plain, renderer=pydoc.plaintext)
    for name, method in methods(plain).items():
        assert f" {name}(self" in shown
        assert method.__doc__, name
        assert "async" not in method.__doc__, name
        assert "await" not in method.__doc__, name


def test_help_of_one_method_is_that_of_the_other():
    shown = pydoc.render_doc(sync.Client.subscribe, renderer=pydoc.plaintext)
    assert "subscribe(self, topic: str, *, filter: str | None = None" in shown
    assert "-> sow.client.sync.client.Subscription" in shown
    assert "start after `bookmark`" in shown
