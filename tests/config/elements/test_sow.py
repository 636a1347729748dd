"""What stands inside SOW."""

from sow.config.elements.sow import SOW


def test_all_kinds_of_topics_go_into_one_list_in_the_order_of_the_file():
    kinds = [child for child in SOW.children if child.status == "implemented"]
    assert [child.name for child in kinds] == ["Topic", "ConflatedTopic", "View"]
    assert {child.fields for child in kinds} == {("topics",)}


def test_queues_are_refused_by_name():
    later = [child.name for child in SOW.children if child.status == "not yet"]
    assert later == ["Queue", "QueueDefinition", "LocalQueue", "GroupLocalQueue"]
