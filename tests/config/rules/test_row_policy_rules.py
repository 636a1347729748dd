"""What roles see: filters with a user's values, and only of what there is."""

import pytest

from sow.core.security_definitions import Allow

VIEW = """<SOW><Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<View><Name>by-desk</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
<Projection><Field>SUM(/px) AS /total/px</Field><Field>/desk</Field></Projection>
<Grouping><Field>/desk</Field></Grouping></View>
<ConflatedTopic><Name>by-desk-C</Name><UnderlyingTopic>by-desk</UnderlyingTopic>
<MessageType>json</MessageType><Interval>1s</Interval></ConflatedTopic></SOW>"""


def allowing(allow):
    return (
        "<Security><Authentication><Tokens><File>tokens</File></Tokens></Authentication>"
        f"<Role><Name>r</Name><Member>*</Member><Allow>{allow}</Allow></Role></Security>"
    )


def test_values_of_a_user_are_no_variables_of_the_file(instance):
    loaded = instance(
        allowing(
            "<Topic>orders</Topic><Read/><Write/><Filter>/desk = ${user.desk}</Filter>"
            "<Select>-/client, -/note</Select><Check>/owner = ${user.name}</Check>"
        )
    )
    assert not loaded.errors
    (role,) = loaded.configuration.security.roles
    assert role.allows == (
        Allow(
            "orders",
            read=True,
            write=True,
            filter="/desk = ${user.desk}",
            select=("-/client", "-/note"),
            check="/owner = ${user.name}",
        ),
    )


@pytest.mark.parametrize(
    ("allow", "words"),
    [
        ("<Read/><Filter>/desk = ${desk}</Filter>", "the variable desk is not defined"),
        ("<Read/><Filter>/desk = ${user.}</Filter>", "write ${user.NAME}"),
        ("<Read/><Filter>/desk = </Filter>", "the end of the filter at position 7"),
        ("<Read/><Filter>BOOKMARK() = '1'</Filter>", "compare fields"),
        ("<Read/><Select>-/a[0]</Select>", "has an index"),
        ("<Read/><Select>-/a,</Select>", "a member is empty"),
        ("<Read/><Select>+/a, +/b</Select>", "hides nothing"),
        ("<Write/><Filter>/desk = 'a'</Filter>", "in an Allow without <Read/>"),
        ("<Read/><Check>/desk = 'a'</Check>", "in an Allow without <Write/> or <Delete/>"),
    ],
)
def test_a_mistake_has_a_sentence(instance, only, allow, words):
    assert words in only(instance(allowing(f"<Topic>orders</Topic>{allow}")))


@pytest.mark.parametrize("name", ["by-desk", "by-desk-C", ".*"])
def test_a_filter_over_what_a_view_does_not_have_is_refused(instance, only, name):
    allow = f"<Topic>{name}</Topic><Read/><Filter>/owner = ${{user.name}}</Filter>"
    text = only(instance(VIEW + allowing(allow)))
    assert "refers to /owner, which rows of the view 'by-desk" in text
    assert "Allow of its own" in text


@pytest.mark.parametrize("condition", ["/desk = ${user.desk}", "/total/px > 3", "/total = 1"])
def test_one_over_what_it_has_is_not(instance, condition):
    allow = f"<Topic>by-desk.*</Topic><Read/><Filter>{condition.replace('>', '&gt;')}</Filter>"
    assert not instance(VIEW + allowing(allow)).errors
