"""Documents merged path by path."""

from conflated_topics.documents import merged


def test_an_object_is_merged_path_by_path():
    document = {"id": 1, "leg": {"px": 1, "qty": 5}}
    assert merged(document, {"leg": {"px": 2}}) == {"id": 1, "leg": {"px": 2, "qty": 5}}


def test_an_array_replaces_the_whole_array():
    assert merged({"a": [1, 2, {"x": 1}]}, {"a": [3]}) == {"a": [3]}


def test_a_null_means_what_it_is_told_to_mean():
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
