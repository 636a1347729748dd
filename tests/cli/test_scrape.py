"""Figures of an exposition."""

from sow.cli.scrape import samples

TEXT = """# HELP sow_step_longest_seconds The longest.
# TYPE sow_step_longest_seconds gauge
sow_step_longest_seconds{step="a query"} 0.25
sow_step_longest_seconds{step="a stream"} 0.5
# HELP sow_connections Connections.
# TYPE sow_connections gauge
sow_connections 3
"""


def test_a_figure_is_found_by_its_name_and_label():
    found = samples(TEXT)
    assert found["sow_step_longest_seconds"] == {"a query": 0.25, "a stream": 0.5}
    assert found["sow_connections"] == {"": 3.0}
