"""A live view as a mapping from SowKey to document."""

SOON_S = 5.0


def test_records_of_several_topics_are_kept_apart_though_their_sow_keys_are_the_same(using):
    async def work(client):
        await client.publish("/desk/1", {"id": 1, "of": "one", "n": 1})
        async with client.live("/desk/1") as one, client.live("^/desk/") as both:
            (key,) = one
            await client.publish("/desk/2", {"id": 1, "of": "two", "n": 1})
            born = await both.change(SOON_S)
            await client.delta_publish("/desk/1", {"id": 1, "n": 2})
            changed = await both.change(SOON_S)
            held = both.copy()
            await client.delete("/desk/2", filter="/id = 1")
            left = await both.change(SOON_S)
            return key, born, changed, held, left, both.copy()

    key, born, changed, held, left, rest = using(work)
    first, second = f"/desk/1:{key}", f"/desk/2:{key}"
    one, other = {"id": 1, "of": "one", "n": 2}, {"id": 1, "of": "two", "n": 1}
    assert (born.key, born.old, born.new) == (second, None, other)
    assert (changed.key, changed.old, changed.new) == (first, one | {"n": 1}, one)
    assert held == {first: one, second: other}
    assert (left.key, left.old, left.new) == (second, other, None)
    assert rest == {first: one}
