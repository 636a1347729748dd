"""Sources and static tables are views: each with a name of its own, and read by the SQL."""

import pytest

from sow.config import loads

SINK = "<Sink><Format>csv</Format><Path>out</Path></Sink>"
CONFLATE = "<Conflate><Key>/k</Key><Interval>1s</Interval></Conflate>"


def source(name=""):
    said = f' name="{name}"' if name else ""
    return f"<Source{said}><Format>rate</Format></Source>"


def static(name):
    return f'<Static Name="{name}"><Format>csv</Format><Path>x</Path></Static>'


def sql(*views):
    return f"<SQL>SELECT * FROM {', '.join(views)}</SQL>" if views else ""


def found(*parts):
    inside = f"<Pipeline><Name>p</Name>{''.join(parts)}{SINK}</Pipeline>"
    text = f"<SOWConfig><Name>t</Name><Pipelines>{inside}</Pipelines></SOWConfig>"
    return [str(finding) for finding in loads(text).findings]


@pytest.mark.parametrize(
    "parts",
    [
        (source("a"),),
        (source("a"), sql("a")),
        (source("a"), source(), sql("A", "source")),
        (source(), static("names"), sql("source", "`names`")),
        (source(), static("names"), sql("source", "names"), CONFLATE),
    ],
)
def test_views_that_the_sql_reads_are_right(parts):
    assert found(*parts) == []


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ((source(), source(), sql("source")), "is the view source, as the element in line"),
        ((source("a"), source("A"), sql("a")), 'give it a name of its own: <Source name="…">'),
        ((source("a"), static("a"), sql("a")), 'give it a name of its own: <Static name="…">'),
        ((source(), static("Source"), sql("source")), "is the view Source, as the element in"),
        ((source("2nd"),), "name: '2nd' is no name that SQL can write without quotes"),
        ((source("a.b"),), "use letters, digits and '_', and no digit in front"),
        ((source(), static("préis"), sql("source")), "is no name that SQL can write"),
        ((source("a"), sql("source")), "it does not read a; write a query over the view a"),
        ((source("a"), source("b"), sql("a")), "it does not read b; write a query over the views"),
        ((source(), static("t"), sql("source")), "it does not read t"),
        ((source("a"), source("b")), "several sources become one stream by SQL"),
        ((source(), static("t")), "a static table is read by SQL, and there is none; add <SQL>"),
        (
            (source("a"), source("b"), sql("a", "b"), CONFLATE),
            "to one topic by this pipeline, and conflate that topic by another",
        ),
    ],
)
def test_a_mistake_is_answered_with_what_to_write(parts, says):
    (one,) = found(*parts)
    assert says in one
