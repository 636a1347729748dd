"""Findings: every mistake kept, in the order of the file, in one form of words."""

import pickle

from sow.config.diagnostics import Diagnostics, FileLine, Finding, Loaded, at, file_of, halves
from sow.core.definitions import Configuration

ERROR = Finding("c.xml", 7, "Name", "error", "is too long", "write a shorter one")
WARNING = Finding("c.xml", 3, "Admin", "warning", "is ignored")


def test_a_finding_says_where_what_and_what_instead():
    assert str(ERROR) == "c.xml:7: Name: is too long; write a shorter one"
    assert str(WARNING) == "c.xml:3: Admin: is ignored"
    assert ERROR.labelled == "c.xml:7: Name: error: is too long; write a shorter one"
    assert ERROR.place == "c.xml:7: Name"


def test_findings_stand_in_the_order_of_the_file():
    findings = Diagnostics("c.xml")
    findings.error(7, "Name", "is too long", "write a shorter one")
    findings.warning(3, "Admin", "is ignored")
    findings.error(7, "Name", "again")
    assert findings.in_order()[:2] == (WARNING, ERROR)
    assert findings.in_order()[2].message == "again"


def test_only_errors_make_a_file_unusable():
    findings = Diagnostics("c.xml")
    findings.warning(3, "Admin", "is ignored")
    assert not findings.has_errors()
    findings.error(7, "Name", "is too long")
    assert findings.has_errors()


def test_errors_and_warnings_are_sent_apart():
    loaded = Loaded(None, (WARNING, ERROR))
    assert loaded.errors == (ERROR,)
    assert loaded.warnings == (WARNING,)


def test_a_server_that_would_stand_open_is_an_error_only_where_it_is_checked():
    open_to_all = Finding("c.xml", 5, "Listen", "error", "stands open")
    loaded = Loaded(Configuration("x"), (WARNING, ERROR), open_to_all)
    assert loaded.checked == Loaded(None, (WARNING, open_to_all, ERROR))
    closed = Loaded(Configuration("x"), (WARNING,))
    assert closed.checked is closed


def test_a_detail_is_cut_where_the_advice_begins():
    assert halves("is too long; write a shorter one; or none") == (
        "is too long",
        "write a shorter one; or none",
    )
    assert halves("is too long") == ("is too long", "")


def test_a_line_knows_its_file_and_is_its_number():
    line = FileLine(7, "a.xml").below(2)
    assert (line, line.file, f"{line}") == (9, "a.xml", "9")
    again = pickle.loads(pickle.dumps(line))
    assert (again, again.file) == (9, "a.xml")
    assert [file_of(other) for other in (line, FileLine(1), 1)] == ["a.xml", "", ""]


def test_another_line_is_named_with_its_file_where_that_is_another_one():
    here, there = FileLine(7, "a.xml"), FileLine(3, "b.xml")
    assert at(FileLine(3, "a.xml"), here) == "line 3"
    assert at(there, here) == "line 3 of b.xml"


def test_findings_of_several_files_stand_file_by_file():
    findings = Diagnostics("b.xml")
    findings.error(FileLine(9, "a.xml"), "Name", "is odd")
    findings.error(FileLine(2, "b.xml"), "Name", "is odd")
    findings.warning(FileLine(3, "a.xml"), "Name", "is odd")
    assert [found.place for found in findings.in_order()] == [
        "a.xml:3: Name",
        "a.xml:9: Name",
        "b.xml:2: Name",
    ]
