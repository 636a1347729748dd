"""A change of a topic by one request, done once for each number, and answered again as it was."""

from tests.server.api.test_records import Place
from tests.server.stand_ins import stepped

PATH = "/v1/topics/orders/records"


async def posted(place, number, seq=None):
    headers = {"Content-Type": "application/json"}
    headers |= {} if seq is None else {"Idempotency-Key": f"feed/{seq}"}
    return await place.ask("POST", PATH, b'{"id":%d}' % number, headers)


@stepped
async def test_one_without_a_number_is_done_each_time():
    async with Place() as place:
        answers = [await posted(place, 1) for _ in range(2)]
        assert [one.json["bookmark"] for one in answers] == ["1", "2"]
        assert not any("SOW-Duplicate" in one.headers for one in answers)


@stepped
async def test_a_number_is_done_once_and_its_repeat_gets_the_answer_of_then():
    async with Place() as place:
        first = await posted(place, 1, 1)
        await posted(place, 2)
        again = await posted(place, 1, 1)
        assert (again.status, again.json) == (first.status, first.json)
        assert again.headers["SOW-Duplicate"] == "true"
        assert (await posted(place, 3, 3)).status == 409, "2 is missing"
        second = await posted(place, 4, 2)
        older = await posted(place, 1, 1)
        assert older.json["bookmark"] == second.json["bookmark"], "no answer of then is kept"
        assert len((await place.get(PATH)).json) == 3
