"""What `sow check` says where names of copies are taken in by something else."""

import pytest


def pattern(text, name="desks"):
    inside = f"<Name>{name}</Name><MessageType>json</MessageType><Key>/id</Key>"
    return f"<Topic>{inside}<Pattern>{text}</Pattern></Topic>\n"


def copies(text, of="desks", name=""):
    inside = f"<Name>{name}</Name>" if name else ""
    inside += f"<MessageType>json</MessageType><UnderlyingTopic>{of}</UnderlyingTopic>"
    return f"<ConflatedTopic>{inside}<TopicFormat>{text}</TopicFormat></ConflatedTopic>\n"


@pytest.mark.parametrize(
    "text", ["^/desk/", "/desk/", "^/desk/.*$", "^/desk/.+", r"^/desk/\w+-?[A-Z]*", "^/d[aeiou]sk/"]
)
def test_a_pattern_that_takes_in_its_own_copies_is_warned_about(sow, text):
    loaded = sow(pattern(text) + copies("%n-C"))
    (finding,) = loaded.findings
    assert loaded.configuration is not None
    assert (finding.severity, finding.element, finding.line) == ("warning", "TopicFormat", 2)
    assert "belongs to the copy, and publishing to it is refused" in finding.message


@pytest.mark.parametrize("text", ["^/desk/[0-9]+$", "^/desk/1$", r"^/desk/\d$", "^/desk/[a-z]+$"])
def test_a_pattern_that_leaves_its_copies_out_is_not(sow, text):
    assert sow(pattern(text) + copies("%n-C")).findings == ()


def test_a_format_that_begins_otherwise_is_not(sow):
    assert sow(pattern("^/desk/") + copies("copy:%n")).findings == ()


def test_another_pattern_may_take_them_in(sow, only):
    text = only(sow(pattern("^/desk/[0-9]$") + pattern("-C$", "all") + copies("%n-C")))
    assert "'/desk/0-C' has a name that the Pattern of 'all' in line 2 matches" in text


def test_copies_of_copies_are_named_by_both_formats(sow, only):
    chain = copies("%n-C", name="c") + copies("%n-slow", "c")
    text = only(sow(pattern("^/desk/.*w$") + chain))
    assert "'/desk/xw-C-slow'" in text


def test_an_exact_name_that_a_copy_would_have_is_warned_about(sow, only):
    exact = "<Topic><Name>/desk/7-C</Name><MessageType>json</MessageType><Key>/id</Key></Topic>\n"
    text = only(sow(exact + pattern("^/desk/[0-9]$") + copies("%n-C")))
    assert "the copy of '/desk/7' would be called as '/desk/7-C' in line 1 is" in text
