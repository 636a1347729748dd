from sow.cli.flatten import cells, columns


def test_top_level_fields_are_columns():
    assert cells(b'{"id":1,"name":"a b"}') == {"id": "1", "name": "a b"}


def test_nested_fields_are_named_by_their_path():
    assert cells(b'{"a":{"b":{"c":1},"d":2}}') == {"/a/b/c": "1", "/a/d": "2"}


def test_numbers_keep_their_spelling():
    assert cells(b'{"px":1.10,"n":123456789012345678901234}') == {
        "px": "1.10",
        "n": "123456789012345678901234",
    }


def test_arrays_stay_json_and_null_is_empty():
    assert cells(b'{"a":[1,{"b":2}],"c":null,"d":{}}') == {"a": '[1,{"b":2}]', "c": "", "d": "{}"}


def test_a_record_without_fields_is_one_value():
    assert cells(b'"text"') == {"value": "text"}


def test_columns_are_the_union_in_the_order_met():
    assert columns([{"a": "", "b": ""}, {"c": "", "a": ""}]) == ["a", "b", "c"]
