"""Over a server's whole life, nobody but its user can open what it has written."""

import os

from tests.edge.serving import Running, configuration

TOPIC = """<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
<FileName>sow/%n.sow</FileName></Topic>"""


def open_to_others(directory):
    paths = [directory, *directory.rglob("*")]
    assert len(paths) > 6
    return [str(path) for path in paths if path.stat().st_mode & 0o077]


def test_data_is_the_servers_own_while_it_runs_and_after(tmp_path):
    data = tmp_path / "data"
    before = os.umask(0)
    try:
        server = Running(configuration(TOPIC), data)
        server.publish("orders", {"id": 1})
        server.request("PUT", "/v1/log/consumers/me", data=b'{"bookmark":"1"}')
        server.wait(server.server.checkpointer.write("orders"))
        assert open_to_others(data) == []
        server.stop()
        assert open_to_others(data) == []
        for path in [data, *data.rglob("*")]:
            path.chmod(0o777 if path.is_dir() else 0o666)
        server.start()
        server.publish("orders", {"id": 2})
        assert open_to_others(data) == []
        server.close()
    finally:
        os.umask(before)
