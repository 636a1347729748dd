"""Replacing a shared subscription of one session by another shared one, without gap or repeat.

What differs is for upstream to say. On the session's own connection an equal subscription stands
for the old one; nothing of it is passed on, and it is replaced there: its state in that moment is
known, and so is which of the shared lines came before it. Those are sent, then the difference, then
what comes of the new subscription. Where nothing differs by what was sent before, the session moves
at once.
"""

import asyncio
from typing import Any

import orjson

from sow.errors import UpstreamLost, invalid_options
from sow.protocol.commands import Command
from sow.server.chained.chain import Chain
from sow.server.chained.own_link import Beginning, StandIn, snapshot_of
from sow.server.chained.share_keys import NO_RECORD, SHARED_FLAGS, ShareKey
from sow.server.chained.shared import Shares
from sow.server.chained.shared_channel import Joining, SharedChannel
from sow.server.chained.shared_subscription import SharedWindowChannel
from sow.server.chained.upstream import Who
from sow.streaming.sessions import Session
from sow.streaming.update_encoder import FeedKey

Heads = list[dict[str, Any]]


class Replacing:
    """One replacement that `command` requests of a session."""

    def __init__(self, chain: Chain, session: Session, command: Command, who: Who) -> None:
        self._chain = chain
        self._session = session
        self._command = command
        self._who = who
        self._name = command.subscription or ""
        old = chain.executor.subscriptions.of(session)[self._name].channel
        self._old = old
        self._is_done = False

    async def replace(self, new: tuple[ShareKey, FeedKey] | None) -> None:
        """Replace it; raises what speaks against that, and changes nothing then."""
        chain, command, session = self._chain, self._command, self._session
        if new is None:
            raise invalid_options(
                "a chained server shares this subscription with others, and the new one would not "
                "be shared (docs/chained.md): unsubscribe, and subscribe again"
            )
        wanted, key = new
        self._check_alike(wanted)
        begins = command.name.startswith("sow_and_")
        found = await chain.joined(session, wanted, key, begins, self._who, self._name)
        if found is None:
            raise invalid_options("the topic's subscriptions are not shared")
        shares, channel = found
        try:
            if isinstance(channel, SharedWindowChannel):
                await self._scroll(shares, channel, key)
                return
            await chain.caught_up(session, self._who)
            if begins:
                await self._answer(shares, channel, wanted, key)
            else:
                await shares.caught_up()
                self._move(channel, key)
                chain.begin_now(session, channel)
                chain.acknowledge(session, command, self._name, matches=0, returned=0)
        except BaseException:
            if not self._is_done:
                channel.give_up(session)
            raise

    def _check_alike(self, wanted: ShareKey) -> None:
        """Raise ClientError if one is a live window and the other is not this scrolled."""
        old, new = self._old, wanted.window
        was = old.window.wanted if isinstance(old, SharedWindowChannel) else wanted
        order = None if was.window is None else was.window.order_by
        is_alike = was.topic == wanted.topic and new is not None and new.order_by == order
        if new is None and not isinstance(old, SharedWindowChannel):
            return
        if not is_alike or not isinstance(old, SharedWindowChannel):
            raise invalid_options(
                "a live window is replaced by another one over the same topic in the same order, "
                "and only that by one; unsubscribe, and subscribe again"
            )

    async def _scroll(self, shares: Shares, channel: SharedWindowChannel, key: FeedKey) -> None:
        """Show another window: what differs from the page that the session holds."""
        old, chain, session = self._old, self._chain, self._session
        assert isinstance(old, SharedWindowChannel)
        await shares.caught_up()
        chain.executor.engine.output.flush_channel(old)
        held = old.held_by(session)
        is_other = old.window.wanted.select != channel.window.wanted.select
        self._move(channel, key)
        answer = channel.begun(session, held, is_other or old.encoder.shape != key.shape)
        chain.show(session, self._command, channel, answer)

    def _move(self, channel: SharedChannel | SharedWindowChannel, key: FeedKey) -> None:
        """From now on the session follows the new one."""
        self._is_done = True
        self._chain.executor.engine.output.flush_channel(self._old)
        self._chain.executor.subscriptions.drop(self._session, self._name)
        self._chain.adopt(self._session, self._command, channel, key)

    async def _answer(
        self, shares: Shares, channel: SharedChannel, wanted: ShareKey, key: FeedKey
    ) -> None:
        """Let upstream say what differs."""
        chain, session, old = self._chain, self._session, self._old
        assert isinstance(old, SharedChannel)
        (held,) = [one.wanted_by(old) for one in chain.shares_of(old, self._who)] or [None]
        if held is None:
            raise chain.upstream.lost()
        if old.encoder.shape.sow_keys != key.shape.sow_keys:
            # Records are to be sent again, as they are by upstream where lines look otherwise.
            held = held._replace(timestamp=not wanted.timestamp)
        is_whole = session in old.whole
        own = chain.own(session, self._who)
        replaced: asyncio.Future[Joining] = asyncio.get_running_loop().create_future()
        state = Joining(keys=set())

        def on_replaced() -> None:
            final = state.copied()
            if (joining := channel.joining.get(session)) is not None:
                state.hold_for(joining)
            if not replaced.done():
                replaced.set_result(final)

        stand_in = StandIn(state, key.oof, on_replaced)
        own.stand_for(stand_in)
        old.freeze(session, chain.now_us)
        try:
            for head in _heads(held, is_whole):
                await self._said(stand_in, head)
            end = chain.placing(session, shares, channel)
            ended = self._begin(stand_in, wanted, key, channel, end)
            either: set[asyncio.Future[Any]] = {replaced, ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not replaced.done():
                await ended
                return  # it was refused, and the client knows
            await self._caught_up(old)
            old.thaw(session, replaced.result(), chain.now_us)
            self._move(channel, key)
            stand_in.gate.set()
            await ended
        finally:
            old.thaw(session, None, chain.now_us)
            own.stand_for(None)
            if not self._is_done:
                channel.give_up(session)

    async def _caught_up(self, old: SharedChannel) -> None:
        """Return when all that the stand-in was sent has come for the old one, too."""
        for shares in self._chain.shares_of(old, self._who):
            await shares.caught_up()

    async def _said(self, stand_in: StandIn, head: dict[str, Any]) -> None:
        """Return when upstream has answered a command about the stand-in."""
        ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def on_end(bookmark: str | None) -> None:
            if not ended.done():
                ended.set_result(bookmark is not None)

        beginning = Beginning(Command(head["c"]), "-", on_end=on_end, stand_in=stand_in)
        await self._chain.own(self._session, self._who).begin(head, beginning)
        if not await ended:
            raise self._chain.upstream.lost()

    def _begin(
        self, stand_in: StandIn, wanted: ShareKey, key: FeedKey, channel: SharedChannel, end: Any
    ) -> "asyncio.Task[None]":
        """Replace the stand-in."""
        chain, session, command = self._chain, self._session, self._command
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_end(bookmark: str | None) -> None:
            if not ended.done():
                ended.set_result(None)
            if bookmark is not None:
                end(bookmark)
            elif self._is_done:
                # The session has been sent a part of the difference.
                chain.end(session, UpstreamLost.reason)

        head = snapshot_of(command, wanted)
        options = ",".join(filter(None, (wanted.options(*SHARED_FLAGS), "replace")))
        head |= {"c": command.name, "s": stand_in.name, "opts": options}
        joining = channel.joining.get(session)
        beginning = Beginning(
            command, self._name, joining, on_end, key.shape.sow_keys, stand_in, replaces=True
        )

        async def begun() -> None:
            await chain.own(session, self._who).begin(head, beginning)
            await ended

        return asyncio.get_running_loop().create_task(begun())


def _heads(held: ShareKey, is_whole: bool) -> Heads:
    """What makes a subscription equal to one that a session follows: one that has not begun with a
    snapshot is as of the place that is requested then."""
    kind = "delta_subscribe" if held.delta else "subscribe"
    if is_whole:
        kind = f"sow_and_{kind}"
    found = [held.line(kind, "", opts=held.options(*SHARED_FLAGS))]
    if not is_whole:
        found.append(held.line("sow", "", opts=held.options(), keys=NO_RECORD))
    return [orjson.loads(line) for line in found]
