"""The options of the data source: under any spelling, and only where they mean something."""

import pytest

from sow.core.source_options import INSTEAD, NAMES, READS, USES, WRITES, misuse, plain


@pytest.mark.parametrize("name", USES)
def test_an_option_is_found_under_each_spelling_of_its_name(name):
    for spelling in (name, name.upper(), name.lower()):
        assert NAMES[plain(spelling)] == name
    assert set(USES[name]) <= {*READS, *WRITES}


def test_no_two_options_are_one_when_they_are_compared():
    assert len(NAMES) == len(USES)
    assert plain("as_of") == plain("asOf") == "asof"


@pytest.mark.parametrize("name", USES)
def test_where_an_option_means_nothing_it_is_said_where_it_does(name):
    for use in (*READS, *WRITES):
        said = misuse(name, use)
        assert (said == "") == (use in USES[name])
        if said:
            assert said.startswith(f"the option {name} means nothing in {use}: ")
            assert name in INSTEAD or USES[name][0] in said
