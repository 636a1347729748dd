"""One element of the table: its names, its children under any of theirs, and its place."""

from sow.config.elements import Element, foreign, later, listing, unused

LEAF = Element(name="Name", synonyms=("Topic",))
SECTION = Element(name="SOW", children=(LEAF, Element(name="Deep", children=(LEAF,))))
ROOT = Element(name="Root", children=(SECTION,))


def test_a_child_is_found_under_each_of_its_names():
    assert SECTION.child("Name") is LEAF
    assert SECTION.child("Topic") is LEAF
    assert SECTION.child("name") is None
    assert ROOT.child("Name") is None


def test_a_walk_says_where_each_element_stands():
    assert [(place, element.name) for place, element in ROOT.walk()] == [
        ("", "Root"),
        ("Root", "SOW"),
        ("Root/SOW", "Name"),
        ("Root/SOW", "Deep"),
        ("Root/SOW/Deep", "Name"),
    ]


def test_what_is_not_ours_says_why():
    assert [(one.name, one.status) for one in later("View", "Queue")] == [
        ("View", "not yet"),
        ("Queue", "not yet"),
    ]
    assert [one.status for one in unused("SlabSize")] == ["no effect"]
    (admin,) = foreign(Admin="look elsewhere")
    assert (admin.name, admin.status, admin.about) == ("Admin", "foreign", "look elsewhere")


def test_a_field_is_filled_by_a_child_or_by_what_is_in_it():
    listed = listing("Grouping", "", "Field", LEAF.kind, "")
    split = Element(name="Expiration", children=(Element(name="Age", fields=("age_us",)),))
    section = Element(name="Topic", children=(listed, split, Element(name="Key", fields=("keys",))))
    assert section.filling("keys") == "Key"
    assert section.filling("age_us") == "Expiration"
    assert section.filling("grouping") == "Grouping"
    assert section.filling("fields") == "", "it is a field of what the list makes"
