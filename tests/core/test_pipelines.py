"""What a pipeline's definition says of itself: its time column, and whether there is an end."""

import pytest

from sow.core.pipelines import (
    FILES,
    INSTEAD,
    NAMES,
    READS,
    TIME_COLUMNS,
    USES,
    WRITES,
    Pipeline,
    PipelineOption,
    Sink,
    Source,
    Static,
    bookmark_problem,
    misuse,
    plain,
)
from tests.cases import all_cases


@pytest.mark.parametrize(
    ("kind", "column"), [*TIME_COLUMNS.items(), *((kind, None) for kind in FILES)]
)
def test_only_sources_that_say_when_have_a_time_of_their_own(kind, column):
    assert Source(format=kind).time == column
    assert Source(format=kind, time_column="at").time == "at"


@pytest.mark.parametrize("kind", [*FILES, *TIME_COLUMNS])
def test_files_have_an_end_and_nothing_else_has(kind):
    assert Source(format=kind).is_files == (kind in ("parquet", "csv", "json"))


def test_a_format_that_only_spark_knows_has_no_end_and_no_time_of_its_own():
    assert (Source(format="delta").is_files, Source(format="delta").time) == (False, None)


def test_a_pipeline_runs_on_until_it_is_sent_to_run_once():
    pipeline = Pipeline(name="p", sources=(Source(format="rate"),), sink=Sink(topic="t"))
    assert pipeline.trigger_us == 1_000_000
    assert not pipeline.autostart


def test_what_may_be_a_secret_is_not_shown_and_what_it_is_called_is():
    options = (PipelineOption("password", "hunter2"),)
    pipeline = Pipeline(
        name="p",
        sources=(Source(format="jdbc", options=options),),
        statics=(Static(name="s", format="jdbc", options=options),),
        sink=Sink(format="kafka", options=options),
        settings=options,
    )
    shown = repr(pipeline.without_values())
    assert (shown.count("'password'"), shown.count("hunter2")) == (4, 0)


@all_cases("name", USES)
def test_an_option_is_found_under_each_spelling_of_its_name(name):
    for spelling in (name, name.upper(), name.lower()):
        assert NAMES[plain(spelling)] == name
    assert set(USES[name]) <= {*READS, *WRITES}


def test_no_two_options_are_one_when_they_are_compared():
    assert len(NAMES) == len(USES)
    assert plain("as_of") == plain("asOf") == "asof"


@all_cases("name", USES)
def test_where_an_option_means_nothing_it_is_said_where_it_does(name):
    for use in (*READS, *WRITES):
        detail = misuse(name, use)
        assert (detail == "") == (use in USES[name])
        if detail:
            assert detail.startswith(f"the option {name} means nothing in {use}: ")
            assert name in INSTEAD or USES[name][0] in detail


def test_a_place_in_the_log_is_one_bookmark_or_time_or_several():
    for text in ("0", "7,5", "0123456789abcdef-7.2", "20261121T093000Z,4", "2026-11-21 09:30"):
        assert bookmark_problem(text) == ""
    for text in ("", "7,", "never", "7,2026-02-30", "0123-7"):
        assert "is no place in the log" in bookmark_problem(text)
