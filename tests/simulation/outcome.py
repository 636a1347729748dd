"""What must hold once everything has been read: each client holds what it requested."""

from sow.core import definitions
from tests.simulation.configurations import FIELDS, JOINED, OVER, behind
from tests.simulation.groups import GroupView
from tests.simulation.views import FOLDED_BY_OTHERS, View
from tests.simulation.windows import WindowView
from tests.topic.views.recomputation import joined, recomputed, shown


class Outcome:
    """The world and its model at one moment, at which nothing is on its way."""

    def __init__(self, world, model):
        self._world, self._model = world, model

    def _expected(self, name, view):
        """The records of a topic that a view should hold."""
        base, passed = behind(self._world.configuration.topics, name)
        records = self._model.matching(base, lambda d: passed(d) and view.test(d))
        return {key: view.shown(document) for key, document in records.items()}

    def check_copies(self):
        """Every topic holds what the model says, and every copy what follows from it."""
        whole = View("", None)
        for name, running in self._world.engine.topics.items():
            if running.definition.name == "through" or running.is_system:
                continue
            if isinstance(running.definition, definitions.View):
                continue
            records = self._world.records(name)
            base, passed = behind(self._world.configuration.topics, name)
            original = [d for d in self._world.records(base) if passed(d)]
            assert records == original, f"{name} is not {base} in its order"
            if isinstance(self._world.engine.topics[base].definition, definitions.View):
                continue
            held = {str(d["id"]): d for d in records}
            assert held == self._expected(name, whole), f"{name} differs from the model"

    def check_rows(self):
        """The rows of each view that waits for nothing are a recomputation over what there is."""
        topics = self._world.engine.topics
        for name, running in topics.items():
            definition = running.definition
            if isinstance(definition, definitions.View) and not running.view.is_dirty:
                rows, wanted = shown(running), self._rows_wanted(running)
                assert [*rows.items()] == [*wanted.items()], f"the rows of {name}"

    def _rows_wanted(self, running):
        definition, topics = running.definition, self._world.engine.topics
        if definition.joins:
            return joined(running, topics, JOINED)
        (of,) = definition.underlyings
        fields = OVER if definition.name == "over" else FIELDS
        return recomputed(topics[of], fields, definition.grouping, definition.filter)

    def check(self, view):
        """A view holds what it requested."""
        if isinstance(view, WindowView | GroupView):
            view.check_at_the_end(self._world)
            return
        by_topic = {}
        for (name, _), document in view.held.items():
            by_topic.setdefault(name, {})[str(document["id"])] = document
        # A topic that is made for a client has a generated name, and reads like any other.
        listed = [topic.name for topic in self._world.engine.catalog.listed()]
        for name in filter(view.follows, listed):
            held, expected = by_topic.pop(name, {}), self._expected(name, view)
            for key, document in held.items():
                if name not in FOLDED_BY_OTHERS and (view.oof or key in expected):
                    assert document == expected.get(key), f"{view} holds {document} of {name}"
            for key, document in self._must_be_sent(name, view).items():
                assert held.get(key) == document, f"{view} was not sent {document} of {name}"
            if view.complete and name != "through":
                lacking = expected.keys() - held.keys()
                assert lacking <= self._may_be_folded(name, view), (
                    f"{view} lacks {lacking} of {name}"
                )
        assert not view.oof or not by_topic, f"{view} holds records of {list(by_topic)}"

    def _may_be_folded(self, name, view):
        """Records that a full queue may have folded into others, which they match, before they
        were sent at all."""
        if name != "match" or not view.folded:
            return set()
        since = self._model.published_after(view.start, name.__eq__, view.test)
        return {entry.key for entry in since if "g" in entry.document}

    def _must_be_sent(self, name, view):
        """Records of a topic that clients publish to, as they came since the view began.

        Where an update may stand for one of another record, those that nothing can stand for.
        """
        if name in ("sums", "through") or view.replaced or (name == "match" and view.paced):
            return {}
        newest, by_match = {}, {}
        for entry in self._model.published_after(view.start, name.__eq__, view.test):
            newest[entry.key] = by_match[entry.document.get("g")] = entry.seq, entry.document
        if name == "match":
            alone = {None: 0, **{g: seq for g, (seq, _) in by_match.items() if g is not None}}
            newest = {
                key: (seq, document)
                for key, (seq, document) in newest.items()
                if "g" not in document or alone[document["g"]] == seq
            }
        records = self._model.records.get(name, {})
        return {
            key: view.shown(document)
            for key, (_, document) in newest.items()
            if records.get(key) == document
        }
