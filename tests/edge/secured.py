"""A server that asks who users are: its roles, its topics, and users with tokens."""

import json

from sow.security.authentication.authenticator import Logons
from sow.security.authentication.tokens import sum_of
from sow.server.boot.routes import TABLE as ADDRESSES
from sow.server.http.route import with_heads
from tests.edge.serving import Running, configuration, records

MARK = "zq7f3a-mark"
SECRET, ABSENT = "zq-secret", "zq-absent"
TOPICS = f"""
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>{SECRET}</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<ConflatedTopic><Name>{SECRET}-C</Name><MessageType>json</MessageType>
  <UnderlyingTopic>{SECRET}</UnderlyingTopic><Interval>100ms</Interval>
  <Filter>/{MARK} IS NULL</Filter></ConflatedTopic>
<ConflatedTopic><Name>public-C</Name><MessageType>json</MessageType>
  <UnderlyingTopic>{SECRET}</UnderlyingTopic><Interval>100ms</Interval>
  <Filter>/{MARK} IS NOT NULL</Filter></ConflatedTopic>
<Topic><Name>zq-patterns</Name><MessageType>json</MessageType><Key>/id</Key>
  <Pattern>^desk/</Pattern></Topic>
<View><Name>public-view</Name><MessageType>json</MessageType><UnderlyingTopic>{SECRET}
  </UnderlyingTopic><Projection><Field>COUNT(/{MARK}) AS /n</Field><Field>/group</Field>
  </Projection><Grouping><Field>/group</Field></Grouping></View>
"""
ROLES = """
<Role><Name>admins</Name><Member>user:admin</Member>
  <Allow><Topic>.*</Topic><Read/><Write/><Delete/></Allow><Allow><Admin/></Allow></Role>
<Role><Name>desk</Name><Member>group:desk</Member>
  <Allow><Topic>orders|orderz.*|desk/mine|public-.*</Topic><Read/><Write/><Delete/></Allow></Role>
<Role><Name>readers</Name><Member>user:reader</Member>
  <Allow><Topic>orders</Topic><Read/></Allow></Role>
<Role><Name>agents</Name><Member>user:agent</Member><Allow><Impersonate/></Allow></Role>
"""
AUDITOR = "<Allow><Topic>/sow/audit</Topic><Read/></Allow>"
ANN = {"Authorization": "Bearer ann-token"}
"""A user of the desk: she may read and write orders and a few others, and nothing else is there."""
ADMIN = {"Authorization": "Bearer admin-token"}
READER = {"Authorization": "Bearer reader-token"}
TABLE = with_heads(ADDRESSES)
PARTS = {
    "file": "app.js",
    "folder": "pages",
    "key": "1",
    "ending": "csv",
    "writer": "w",
    "epoch": "1",
    "seq": "1",
    "id": "1",
    "name": "n",
    "node": "n:1",
}


def tokens(**groups):
    return "".join(
        f"{name} {sum_of(f'{name}-token')} {group}".rstrip() + "\n"
        for name, group in groups.items()
    )


USERS = {"ann": "desk", "ben": "desk", "reader": "", "admin": "", "agent": "", "stranger": ""}


def secured(directory, roles=ROLES, more="", topics=TOPICS):
    return configuration(
        topics,
        f"<Security><Authentication><Tokens><File>{directory}/tokens</File></Tokens>"
        f"</Authentication>{roles}</Security>{more}",
    )


class Secured(Running):
    """A server that asks who users are."""

    def __init__(self, directory, settings="", **more):
        self.place = directory
        self.say(**USERS)
        self.next = secured(directory, more=settings)
        # Here many are refused, who would have to wait.
        more = {"logons": Logons()} | more
        super().__init__(self.next, directory / "data", reread=lambda: self.next, **more)
        for topic in (SECRET, "orders"):
            body = json.dumps([{"id": f"{topic}-{MARK}", "group": MARK, MARK: MARK}]).encode()
            if topic == "orders":
                body = b'[{"id":1},{"id":2}]'
            assert self.ask("POST", records(topic), ADMIN, body).status == 200

    def say(self, **groups):
        (self.place / "tokens").write_text(tokens(**groups))

    def ask(self, method, path, who=None, body=None, **headers):
        headers = {"Content-Type": "application/json"} | headers | (who or {})
        return self.request(method, path, data=body, headers=headers)

    def reload(self):
        return self.ask("POST", "/v1/config/reload", ADMIN)
