"""What `sow init FILE.csv` writes takes the file: by `sow publish` and by `sow load`."""

import re

import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.config import loads
from tests.edge.serving import Running, configuration

COLUMNS = {
    "whole": (["1", "-2", "0"], "int64", [1, -2, 0]),
    "largest": (["9223372036854775807", "-9223372036854775808"], "int64", [2**63 - 1, -(2**63)]),
    "beyond-64-bits": (["12345678901234567890", "1"], "string", ["12345678901234567890", "1"]),
    "beyond-doubles": (["9" * 400, "1"], "string", ["9" * 400, "1"]),
    "fractions": (["1.5", "2", "-0.25"], "float64", [1.5, 2, -0.25]),
    "many-digits": (["1.2345678901234567890", "1"], "string", ["1.2345678901234567890", "1"]),
    "last-zeros": (["1.10", "2.50"], "float64", [1.1, 2.5]),
    "exponents": (["1e5", "2.5E-3"], "float64", [1e5, 2.5e-3]),
    "short-hashes": (["7e10234", "12e4567"], "string", ["7e10234", "12e4567"]),
    "leading-zeros": (["02134", "00501"], "string", ["02134", "00501"]),
    "plus-signs": (["+5", "+6"], "string", ["+5", "+6"]),
    "no-zero-before-the-point": ([".5", "1.5"], "string", [".5", "1.5"]),
    "point-at-the-end": (["5.", "1.5"], "string", ["5.", "1.5"]),
    "thousands": (['"1,000"', '"2,500"'], "string", ["1,000", "2,500"]),
    "percent": (["5%", "7.5%"], "string", ["5%", "7.5%"]),
    "currency": (["$5.00", "€7"], "string", ["$5.00", "€7"]),
    "blanks": ([" 5", "6 "], "string", [" 5", "6 "]),
    "hexadecimal": (["0x1F", "0x20"], "string", ["0x1F", "0x20"]),
    "nan": (["nan", "1.5"], "string", ["nan", "1.5"]),
    "infinite": (["inf", "-Infinity"], "string", ["inf", "-Infinity"]),
    "not-applicable": (["N/A", "5"], "string", ["N/A", "5"]),
    "null-words": (["NULL", "null"], "string", ["NULL", "null"]),
    "gaps": (["", "5"], "int64", [None, 5]),
    "nothing": (["", ""], None, [None, None]),
    "true-and-false": (["true", "false"], "bool", [True, False]),
    "of-pandas": (["True", "False"], "string", ["True", "False"]),
    "capitals": (["TRUE", "FALSE"], "string", ["TRUE", "FALSE"]),
    "yes-and-no": (["Y", "N"], "string", ["Y", "N"]),
    "ones-and-zeros": (["1", "0"], "int64", [1, 0]),
    "bool-and-number": (["true", "1"], "string", ["true", "1"]),
    "days": (["2024-01-31", "0001-01-01"], "date", ["2024-01-31", "0001-01-01"]),
    "no-days": (["2024-02-30", "2024-01-01"], "string", ["2024-02-30", "2024-01-01"]),
    "other-days": (["31/01/2024", "01.02.2024"], "string", ["31/01/2024", "01.02.2024"]),
    "times": (
        ["2024-01-01T00:00:00Z", "2024-01-01 09:30:00.000001"],
        "timestamp",
        ["2024-01-01T00:00:00Z", "2024-01-01 09:30:00.000001"],
    ),
    "zones": (
        ["2024-01-01T00:00:00+05:30", "2024-01-01T00:00:00-0300"],
        "timestamp",
        ["2024-01-01T00:00:00+05:30", "2024-01-01T00:00:00-0300"],
    ),
    "nanoseconds": (["2024-01-01T00:00:00.000000001Z"] * 2, "string", None),
    "days-and-times": (["2024-01-01", "2024-01-01T00:00:00Z"], "string", None),
    "clocks": (["09:30", "16:00:00"], "string", ["09:30", "16:00:00"]),
    "texts-of-numbers": (['"5"', "x"], "string", ["5", "x"]),
    "quotes": (['"a ""b"", c"', "'d'"], "string", ['a "b", c', "'d'"]),
    "line-breaks": (['"a\nb"', '"c\r\nd"'], "string", ["a\nb", "c\r\nd"]),
    "objects": (['"{""a"":1.10}"', "{}"], "json", [{"a": 1.1}, {}]),
    "arrays": (['"[1,null]"', "[]"], "json", [[1, None], []]),
    "brackets": (["[x]", "{"], "string", ["[x]", "{"]),
    "array-or-text": (["[1]", "x"], "string", ["[1]", "x"]),
    "scripts": (["日本語", "Ωé\u202e😀"], "string", ["日本語", "Ωé\u202e😀"]),
    "huge": (["x" * 300_000, "y"], "string", ["x" * 300_000, "y"]),
    "formulas": (["=1+1", "@x"], "string", ["=1+1", "@x"]),
    "uuids": (["0b9c0d3a-6d5e-4b4f-9b43-1c1f0e1d2c3b", "x"], "string", None),
}
"""By the name of the kind: cells as they stand in the file, the type that is suggested, and the
values that are published; None: the cells."""

HEADS = {
    "of-an-index": ",v",
    "path": "k,/leg/v",
    "path-of-one": "k,/v",
    "slash": "k,a/v",
    "blank": "k,my v",
    "quotes": 'k,"v ""x"""',
    "dots": "k,v.x",
    "dollar": "k,$v",
    "brackets": "k,v[0]",
    "tilde": "k,/a~1b/~0v",
    "scripts": "k,größe",
    "xml": "k,<v>&amp;",
    "number": "k,2024",
    "marked": "\ufeffk,v",
}


def lines(cells):
    return "".join(f"r{at},{cell}\n" for at, cell in enumerate(cells))


FILES = {name: "k,v\n" + lines(cells) for name, (cells, _, _) in COLUMNS.items()} | {
    f"head-{name}": f"{head}\n" + lines(["02134", "5"]) for name, head in HEADS.items()
}


def run(*words):
    return CliRunner().invoke(main, [*map(str, words)])


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """Each file, the topic that `sow init` makes of it, and a server of all of these."""
    folder = tmp_path_factory.mktemp("files")
    files, topics, types = {}, "", {}
    for name, text in FILES.items():
        files[name] = folder / f"{name}.csv"
        files[name].write_bytes(text.encode())
        config = folder / f"{name}.xml"
        made = run("init", files[name], "--yes", "--config", config, "--conflated", "none")
        assert made.exit_code == 0, (name, made.stderr)
        (topic,) = loads(config.read_text()).configuration.topics
        types[name] = {one.path: one.type for one in topic.schema}
        topics += re.search("<Topic>.*</Topic>", config.read_text(), re.DOTALL)[0]
    server = Running(configuration(topics), tmp_path_factory.mktemp("data"))
    yield server, files, types
    server.close()
    assert server.errors == []


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_of_each_kind_is_published_as_what_it_says(begun, name):
    server, files, types = begun
    cells, kind, values = COLUMNS[name]
    assert types[name].get("/v") == kind
    found = []
    for command in ("publish", "load"):
        server.clear()
        said = run(command, name, files[name], "--format", "csv", "--url", server.url)
        assert said.exit_code == 0, said.stderr
        found.append([one.get("v") for one in server.records(name)])
    assert found == [cells if values is None else values] * 2


@pytest.mark.parametrize("name", HEADS)
def test_columns_of_any_name_are_published(begun, name):
    server, files, _types = begun
    topic = f"head-{name}"
    said = run("publish", topic, files[topic], "--format", "csv", "--url", server.url)
    assert said.exit_code == 0, said.stderr
    assert len(server.records(topic)) == 2


def test_there_are_many_kinds():
    assert len(COLUMNS) >= 32
