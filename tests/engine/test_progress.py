"""Progress: counts of what a restart has done."""

from sow.engine.progress import Progress


def read(progress):
    return progress.topic, progress.done, progress.of, progress.is_settling


def test_records_are_counted_as_they_come_back():
    progress = Progress()
    assert read(progress) == ("", 0, 0, False)
    progress.begin(10)
    progress.put_back("a", 4)
    progress.put_back("b", 5)
    assert read(progress) == ("b", 9, 10, False)


def test_no_more_is_done_than_there_is():
    progress = Progress()
    progress.begin(3)
    progress.put_back("a", 4)
    assert read(progress) == ("a", 3, 3, False)


def test_what_is_made_of_records_comes_when_all_are_back():
    progress = Progress()
    progress.begin(3)
    progress.settle("a")
    assert read(progress) == ("a", 3, 3, True)
    progress.begin(2)
    assert read(progress) == ("", 0, 2, False)
