"""What the simulated server is configured with, and how that changes between and within lives."""

from dataclasses import replace

from sow.core.definitions import WRITES, WRITES_BEFORE, ConflatedTopic, Join, Merge, Topic, View
from tests.laws.harness import SECOND
from tests.simulation.model import CALCULATED, test_of
from tests.topic.views.recomputation import Field, FieldOf

MS = 1000
EXPIRES_US = 3 * SECOND


def topic(name, **more):
    return Topic(name, "json", keys=("/id",), **more)


def copy(name, underlying, interval_us, **more):
    return ConflatedTopic(name, "json", underlying, interval_us=interval_us, **more)


FIELDS = (
    Field("v", None, "/v"), Field("count", "COUNT", "1"), Field("sum", "SUM", "/n"),
    Field("least", "MIN", "/n"), Field("most", "MAX", "/n"), Field("last", None, "/id"),
)  # fmt: skip
OVER = (Field("count", "SUM", "/count"), Field("least", "MIN", "/least"), Field("last", None, "/v"))
JOINED = (
    FieldOf("g", None, "t", "/g"), Field("count", "COUNT", "1"), FieldOf("ts", "COUNT", "t", "/id"),
    FieldOf("es", "COUNT", "e", "/id"), FieldOf("sum", "SUM", "e", "/n"),
    FieldOf("most", "MAX", "t", "/n"), FieldOf("last", None, "e", "/n"),
)  # fmt: skip


def grouped(name, of, fields=FIELDS, by="/v", **more):
    """A view whose rows can be recomputed (`tests.topic.views.recomputation`)."""
    return View(name, "json", (of,), tuple(map(str, fields)), (by,), **more)


def pair(kind="left"):
    """A view of two topics, whose records come and go and meet now and then."""
    return View(
        "pair", "json", ("t", "e"), tuple(map(str, JOINED)), ("[t]./g",),
        joins=(Join("t", "/v", "e", "/v", kind),),
    )  # fmt: skip


TOPICS = (
    topic("t"),
    topic("e", expires=True, expiration_us=EXPIRES_US),
    topic("off", conflation_policy="off"),
    topic("news", conflation_policy="unsubscribe"),
    topic("always", conflation_policy="always"),
    topic("end", placement="append"),
    topic("through", retain=False),
    topic("match", match=("/g",)),
    topic("sums", merges=(Merge("/q", "sum"),)),
    topic("desks", pattern="^/desk/[0-9]$"),
    topic("logs", pattern="^/log/[0-9]$", conflation_policy="off"),
    copy("t-C", "t", SECOND),
    copy("t-tick", "t", 500 * MS, schedule="tick", filter="/v > 4"),
    copy("t-CC", "t-C", SECOND),
    copy("t-C2", "t", SECOND),
    copy("t-F1", "t", 500 * MS, filter="/v > 4"),
    copy("t-F2", "t", 500 * MS, filter="/v > 4"),
    copy("t-F3", "t", 500 * MS, filter="/v > 7"),
    copy("desks-C", "desks", 500 * MS, topic_format="%n-C"),
    copy("desks-D", "desks", 500 * MS, topic_format="%n-D"),
    grouped("groups", "t"),
    grouped("expiring", "e", filter="/v > 2"),
    grouped("slowly", "t-C"),
    grouped("over", "groups", OVER, "/nothing"),
    pair(),
    copy("pair-C", "pair", 500 * MS),
    WRITES,
    WRITES_BEFORE,
)
"""Some copies are alike, and one until a reload changes one of them; some differ in one thing."""
PUBLISHED = (
    "t", "e", "off", "news", "always", "end", "through", "match", "sums",
    "/desk/1", "/desk/2", "/log/1", "/log/2",
)  # fmt: skip
COPIES = {
    "t": ("t-C", "t-tick", "t-CC", "t-C2", "t-F1", "t-F2", "t-F3"),
    "/desk/1": ("/desk/1-C", "/desk/1-D"),
    "/desk/2": ("/desk/2-C", "/desk/2-D"),
}
DELETED_FROM = ("t", "e", "news", "always", "end", "match", "/desk/1", "/desk/2")
FOLLOWED = (
    *("t", "e", "off", "news", "always", "end", "match", "sums", "t-C", "t-tick", "t-CC"),
    *("t-C2", "t-F1", "t-F2", "^t-F"),
    *("^(t|e|end)$", "^/desk/.$", "^/desk/.-C$", "^/desk/.-", "^t-", "^/log/.$", "^(off|/log/.)$"),
)
FILTERS = (None, None, "/v > 4", "/v > 7", "/v = 3", "/id = 2", "/w/x = 1", *CALCULATED)


LEFT_OUT = {"t-CC": 0.5, "t-F3": 0.3, "slowly": 0.4}
"""How often these are not there."""


def varied(random):
    """The same topics, with everything that may change drawn again."""
    changed = []
    for definition in TOPICS:
        if definition.name == "t":
            fields = random.choice(((), (("/v",),), (("/w/x",),)))
            definition = replace(definition, hash_indexes=fields)
        elif definition.name in ("t-C", "t-C2"):
            definition = replace(definition, interval_us=random.choice((300 * MS, SECOND)))
        elif definition.name == "t-tick":
            definition = replace(
                definition,
                schedule=random.choice(("tick", "per-key")),
                filter=random.choice(("/v > 4", "/v > 4", "/v < 5", "/w/x = 1", None)),
            )
        elif definition.name in ("t-F1", "t-F2"):
            filter_ = random.choice(("/v > 4", "/v > 4", "/v > 7", None))
            interval_us = random.choice((500 * MS, 500 * MS, SECOND))
            definition = replace(definition, filter=filter_, interval_us=interval_us)
        elif random.random() < LEFT_OUT.get(definition.name, 0):
            continue
        elif isinstance(definition, View):
            definition = varied_view(definition, random)
        elif definition.name in ("desks-C", "desks-D"):
            definition = replace(definition, filter=random.choice((None, "/v > 4")))
        elif definition.name == "end":
            policy = random.choice(("conflate", "always"))
            placement = random.choice(("append", "replace"))
            definition = replace(definition, conflation_policy=policy, placement=placement)
        changed.append(definition)
    return tuple(changed)


def varied_view(definition, random):
    """Other rows under the same keys."""
    if definition.joins:
        return pair(random.choice(("left", "inner", "full")))
    if definition.name in ("groups", "expiring"):
        return replace(definition, filter=random.choice((None, "/v > 2", "/v > 6")))
    return definition


def behind(topics, name):
    """Which topic a copy copies in the end, and the test that its records have passed."""
    definitions = {definition.name: definition for definition in topics}
    tests = []
    while name in definitions or name.endswith(("-C", "-D")):
        definition = definitions.get(name) or definitions[f"desks{name[-2:]}"]
        if not isinstance(definition, ConflatedTopic):
            break
        tests.append(test_of(definition.filter))
        name = name[:-2] if definition.topic_format else definition.underlying
    return name, lambda document: all(test(document) for test in tests)
