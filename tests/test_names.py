"""One word, one meaning; and nobody writes what is another one's.

What is planted in the last tests is found.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = [path for folder in ("sow", "conflated_topics") for path in (ROOT / folder).rglob("*.py")]
BLOCKING = {
    "Client",
    "Http",
    "IdempotentPublisher",
    "LeasedMessage",
    "Live",
    "LiveView",
    "LiveWindow",
    "MessageConsumer",
    "Publisher",
    "Rows",
    "Subscription",
}
"""The blocking client has the interface of the asyncio client, name for name, so that a program
changes from one to the other by an import."""
ANSWERED = {"Subscription"}
"""What the client calls a subscription is the server's, seen from the other end."""
ERRORS = {"error", "failure"}
"""An error gathers what is known about it on its way up: its place, index and status."""
FOREIGN = {
    "column.justify": "a table of rich",
    "queue.count": "a queue, by its outbox: without a call for each frame and session",
    "queue.bytes": "the same",
    "latecomer.turn": "who is late, by its turns: without a call for each that one more makes late",
    "word.start_pos": "a token of Lark, whose constructor takes as long as the rest",
    "word.type": "a token of Lark",
    "options.log_errors": "options of RE2",
    "options.max_mem": "options of RE2",
    "options.never_capture": "options of RE2",
    "response.body": "a response of aiohttp",
    "response.content_type": "a response of aiohttp",
    "response.content_length": "a response of aiohttp",
    "request.writer.output_size": "a writer of aiohttp",
    "server.request_factory": "a server of aiohttp",
    "context.minimum_version": "a context of ssl",
    "context.verify_mode": "a context of ssl",
    "parser.buffer_text": "a parser of expat",
    "parser.StartElementHandler": "a parser of expat",
    "parser.EndElementHandler": "a parser of expat",
    "parser.CharacterDataHandler": "a parser of expat",
    "parser.StartDoctypeDeclHandler": "a parser of expat",
    "SSLProtocol.max_size": "a protocol of asyncio",
    "call.__doc__": "a function that is made where it is written",
    "call.__signature__": "the same",
    "evaluate.depth": "a function that is made where it is written",
}
"""Objects of libraries, and of nobody else."""


@pytest.fixture(scope="module")
def trees():
    """Each module, parsed, by its place."""
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in MODULES}


def classes(trees):
    """Where each class is defined, by its name."""
    found = {}
    for place, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(place)
    return found


def is_one_thing(name, places):
    """Whether classes of one name are the two forms of one interface."""
    others = [place for place in places if not place.startswith("sow/client/sync/")]
    if name in BLOCKING and len(others) < len(places):
        places = others
    if name in ANSWERED:
        places = [place for place in places if not place.startswith("sow/client/")]
    return len(places) <= 1


def own_attributes(tree):
    """Attributes that the classes of a module have."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for inner in ast.walk(node):
                match inner:
                    case ast.Attribute(value=ast.Name(id="self"), ctx=ast.Store()):
                        yield inner.attr
                    case ast.AnnAssign(target=ast.Name(id=name)):
                        yield name


def written_elsewhere(tree):
    """What a module writes that is state of another module's objects, as text."""
    own = set(own_attributes(tree))
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)):
            continue
        text, owner = ast.unparse(node), ast.unparse(node.value)
        if owner in ("self", "cls") or node.attr in own or text in FOREIGN:
            continue
        if owner.rpartition(".")[2] not in ERRORS:
            yield text


def test_no_class_is_called_like_another_one(trees):
    found = {name: places for name, places in classes(trees).items() if len(places) > 1}
    assert {n: places for n, places in found.items() if not is_one_thing(n, places)} == {}


def test_a_module_writes_only_its_own_state(trees):
    found = {place: list(written_elsewhere(tree)) for place, tree in trees.items()}
    assert {place: texts for place, texts in found.items() if texts} == {}


def test_a_second_class_of_a_name_is_found():
    assert not is_one_thing("Entry", ["sow/store/protocols.py", "sow/streaming/outbox/outbox.py"])
    assert not is_one_thing("Client", ["sow/client/client.py", "sow/server/boot/app.py"])
    assert is_one_thing("Client", ["sow/client/client.py", "sow/client/sync/client.py"])


@pytest.mark.parametrize(
    "source",
    [
        "session.connected = False",
        "self.executor.notice = print",
        "engine.topics[name].count += 1",
        "a, topic.definition = 1, 2",
        "class Own:\n    def __init__(self):\n        self.mine = 1\n\nother.theirs = 2",
    ],
)
def test_state_that_is_written_from_outside_is_found(source):
    assert list(written_elsewhere(ast.parse(source)))
