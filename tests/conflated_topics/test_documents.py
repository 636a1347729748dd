"""Documents merged path by path."""

from conflated_topics.documents import ObjectWithText, merged


def test_an_object_is_merged_path_by_path():
    document = {"id": 1, "leg": {"px": 1, "qty": 5}}
    assert merged(document, {"leg": {"px": 2}}) == {"id": 1, "leg": {"px": 2, "qty": 5}}


def test_an_array_replaces_the_whole_array():
    assert merged({"a": [1, 2, {"x": 1}]}, {"a": [3]}) == {"a": [3]}


def test_a_null_means_what_it_is_sent_to_mean():
    document = {"a": 1, "b": {"c": 2}}
    delta = {"a": None, "b": {"c": None}, "d": None}
    assert merged(document, delta, "ignore") == document
    assert merged(document, delta, "set") == {"a": None, "b": {"c": None}, "d": None}
    assert merged(document, delta, "remove") == {"b": {}}


def test_neither_document_is_changed():
    document, delta = {"a": {"b": 1}}, {"a": {"c": {"d": None}}}
    assert merged(document, delta, "remove") == {"a": {"b": 1, "c": {}}}
    assert (document, delta) == ({"a": {"b": 1}}, {"a": {"c": {"d": None}}})


def test_new_fields_come_last_in_the_order_of_the_delta():
    assert list(merged({"b": 1, "a": 1}, {"d": 1, "a": 2, "c": 1})) == ["b", "a", "d", "c"]


def test_a_scalar_changes_the_text_of_an_object_that_has_one():
    old = {"a": ObjectWithText({"@x": 1, "#text": "old"})}
    assert merged(old, {"a": "new"}) == {"a": {"@x": 1, "#text": "new"}}
    assert type(merged(old, {"a": "new"})["a"]) is ObjectWithText
    assert merged(old, {"a": None}, "ignore") == old
    assert merged(old, {"a": [1]}) == {"a": [1]}


def test_a_text_becomes_that_of_the_object_merged_into_it():
    delta = {"a": ObjectWithText({"@x": 1})}
    assert merged({"a": "old"}, delta) == {"a": {"@x": 1, "#text": "old"}}
    assert merged({"a": "old"}, {"a": {"b": 1}}) == {"a": {"b": 1}}
    assert merged({"a": {"b": 1}}, delta) == {"a": {"b": 1, "@x": 1}}


def test_an_object_with_text_stays_one_among_new_fields():
    old = {"a": ObjectWithText({"@x": "1"})}
    both = merged(merged(old, {"a": {"b": "2"}}), {"a": "text"})
    assert both == {"a": {"@x": "1", "b": "2", "#text": "text"}}
