"""What tools of `sow mcp` say of themselves, and which arguments they take."""

import pytest

from sow.cli.mcp_tools import ANSWER_BYTES_MAX, TOOLS, AnswerText
from sow.errors import ClientError


def test_each_tool_describes_its_arguments():
    for name, tool in TOOLS.items():
        described = tool.described(name)
        assert described["inputSchema"]["properties"].keys() >= set(tool.required)
        assert described["annotations"]["readOnlyHint"] == (name not in ("publish", "delete"))


def test_arguments_are_checked_by_name_and_type():
    query = TOOLS["query"]
    assert query.checked({"topic": "a", "top_n": 3}) == {"topic": "a", "top_n": 3}
    for wrong, part in [
        ([], "an object"),
        ({}, "topic is missing"),
        ({"topic": 1}, "of type string"),
        ({"topic": "a", "x": 1}, "no argument 'x'"),
        ({"topic": "a", "top_n": 1.5}, "of type integer"),
    ]:
        with pytest.raises(ClientError, match=part):
            query.checked(wrong)


def test_lines_count_and_remarks_do_not():
    found = AnswerText()
    found.remark("advice")
    found.add("a")
    found.add("x" * ANSWER_BYTES_MAX)
    found.add("b")  # nothing stands behind what is missing
    assert found.text(1) == "advice\na\ncut: 1 of 3"
