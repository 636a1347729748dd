"""Whatever stands in a configuration file, it is answered with findings, soon and cheaply."""

import tracemalloc
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sow.config import loads
from tests.cases import all_cases
from tests.fuzz.conftest import FUZZ
from tests.fuzz.inputs import edited

SHIPPED = (Path(__file__).parents[2] / "config.xml").read_bytes()
BILLION_LAUGHS = (
    b'<!DOCTYPE l [<!ENTITY a "ha">'
    + b"".join(b'<!ENTITY %c "%b">' % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(9))
    + b"]><SOWConfig><Name>&j;</Name></SOWConfig>"
)
BOMBS = {
    "billion laughs": BILLION_LAUGHS,
    "external entity": b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>'
    b"<SOWConfig><Name>&e;</Name></SOWConfig>",
    "external dtd": b'<!DOCTYPE SOWConfig SYSTEM "http://127.0.0.1:1/x.dtd"><SOWConfig/>',
    "parameter entity": b'<!DOCTYPE x [<!ENTITY % e SYSTEM "file:///etc/passwd"> %e;]><x/>',
    "inclusion": b'<SOWConfig xmlns:xi="http://www.w3.org/2001/XInclude">'
    b'<xi:include href="/etc/passwd" parse="text"/></SOWConfig>',
    "100,000 levels": b"<SOWConfig>" + b"<SOW>" * 100_000,
    "a huge attribute": b'<SOWConfig x="' + b"a" * 1_000_000 + b'"/>',
    "not utf-8": b"<SOWConfig><Name>\xff</Name></SOWConfig>",
    "utf-16": "<SOWConfig><Name>x</Name></SOWConfig>".encode("utf-16"),
    "zeros": b"\0" * 1000,
    "nothing": b"",
}


@all_cases("name", [name for name in BOMBS if name != "utf-16"])
def test_a_hostile_file_is_refused_with_findings(name):
    tracemalloc.start()
    loaded = loads(BOMBS[name])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert loaded.configuration is None
    assert loaded.errors
    assert "root:" not in "".join(map(str, loaded.findings))
    assert peak < 64 * 1024**2


@FUZZ
@given(edited(st.just(SHIPPED)))
def test_any_edit_of_the_shipped_file_is_answered(text):
    loaded = loads(text)
    assert (loaded.configuration is None) == bool(loaded.errors)
    assert all(finding.line > 0 for finding in loaded.findings)
