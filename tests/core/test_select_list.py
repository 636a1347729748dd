"""Select lists: the most specific path decides."""

import pytest

from sow.core.comma_lists import MEMBERS_MAX, check_written, common, parse_select, united
from sow.errors import ClientError, TooLarge

ORDER = {"id": 1, "px": 2.5, "leg": {"qty": 3, "side": "B"}, "fills": [{"px": 1, "at": 2}, 7]}


@pytest.mark.parametrize(
    ("members", "visible"),
    [
        (["/id", "/px"], {"id": 1, "px": 2.5}),
        (["$.leg.qty"], {"leg": {"qty": 3}}),
        (["-/leg", "-/fills"], {"id": 1, "px": 2.5}),
        (["-/", "+/leg", "-/leg/side"], {"leg": {"qty": 3}}),
        (["-/", "+/id", "+/fills/px"], {"id": 1, "fills": [{"px": 1}]}),
        (["-/fills/px", "-/leg"], {"id": 1, "px": 2.5, "fills": [{"at": 2}, 7]}),
        (["+/id"], ORDER),
        (["-/", "+/nothing"], {}),
        (["+/id", "-/id", "-/"], {"id": 1}),
    ],
)
def test_a_list_shows_what_its_longest_paths_say(members, visible):
    assert parse_select(members).apply(ORDER) == visible


@pytest.mark.parametrize(
    ("members", "names"),
    [
        (["/px", "/id"], ("px", "id")),
        (["-/", "+/id"], ("id",)),
        (["-/"], ()),
        (["-/", "-/px"], ()),
        (["+/id"], None),
        (["-/id"], None),
        (["/leg/qty"], None),
        (["/leg", "/px/deep"], None),
    ],
)
def test_a_list_of_whole_outermost_fields_says_which(members, names):
    found = parse_select(members).whole_fields
    assert found == names
    if found is not None:
        shown = parse_select(members).apply(ORDER)
        assert shown == {name: ORDER[name] for name in found}


def test_an_empty_container_is_shown_where_it_is_not_hidden():
    assert parse_select(["-/a/b"]).apply({"a": {"b": 1}, "c": {}}) == {"a": {}, "c": {}}


def test_a_container_of_which_nothing_is_shown_is_not_shown():
    joined = common([["-/client"], ["/id", "/client/name"]])
    for members in (joined, ["-/", "-/client/name", "+/id"]):
        document = {"id": 1, "client": [{"name": 1}, {"name": 2}]}
        assert parse_select(members).apply(document) == {"id": 1}


@pytest.mark.parametrize("members", [[], ["id"], ["+id"], ["/a[0]"]])
def test_what_is_no_path_is_refused(members):
    with pytest.raises(ClientError, match="select"):
        parse_select(members)


def test_what_is_written_is_bounded_and_what_is_made_of_it_shows_all_of_it():
    names = [f"/a{at}" for at in range(2 * MEMBERS_MAX)]
    check_written(names[:MEMBERS_MAX])
    with pytest.raises(TooLarge, match="and 1000 are the most"):
        check_written(names[: MEMBERS_MAX + 1])
    document = {name[1:]: 1 for name in names}
    both = united([names[:MEMBERS_MAX], names[MEMBERS_MAX:]])
    assert parse_select(both).apply(document) == document
    rest = common([names[:MEMBERS_MAX], ["-/a0"]])
    assert len(parse_select(rest).apply(document)) == MEMBERS_MAX - 1
