"""A server for the tests of pipelines: up while it is needed, and gone without a trace."""

import json
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from sow.errors import SowError
from sow.spark.testing import serve
from tests.edge.topics import MESSAGE_TYPES, TOPICS

pytestmark = pytest.mark.edge

CONFIG = f"<SOWConfig><Name>t</Name>{MESSAGE_TYPES}<SOW>{TOPICS}</SOW></SOWConfig>"


@pytest.mark.parametrize("is_file", [False, True])
def test_a_server_of_a_text_or_a_file_is_there_until_the_end(tmp_path, is_file):
    file = tmp_path / "config.xml"
    file.write_text(CONFIG)
    with serve(file if is_file else CONFIG) as server:
        with urlopen(f"{server.url}/v1/topics/orders") as answer:
            assert json.load(answer)["name"] == "orders"
        assert server.directory.is_dir()
    assert not server.directory.exists()
    assert list(tmp_path.iterdir()) == [file]
    with pytest.raises(URLError):
        urlopen(server.url)


def test_two_servers_share_nothing():
    with serve(CONFIG) as one, serve(CONFIG) as other:
        assert (one.url, one.directory) != (other.url, other.directory)


@pytest.mark.parametrize("config", ["<SOWConfig><Nmae/></SOWConfig>", "missing.xml"])
def test_a_server_that_does_not_start_says_why(config):
    with pytest.raises(SowError, match=r"does not start: .*(Nmae|missing\.xml)"), serve(config):
        pass
