"""Files that are handed out as they are: to anybody, once for each state of them."""

import pytest

from sow.server.api.client_files import CONSOLE_FOLDER, ShippedFile
from sow.server.boot.routes import Route
from tests.server.stand_ins import Served, World, stepped


def served(name):
    return Served(World(), Route("GET", f"/{name}", "nothing", ShippedFile(name).handle, ""))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("sow.js", "text/javascript"), ("sow.d.ts", "application/typescript")],
)
@stepped
async def test_a_file_is_handed_out_as_what_it_is(name, kind):
    async with served(name) as place:
        answer = await place.get(f"/{name}")
        assert answer.status == 200
        assert answer.body == (CONSOLE_FOLDER / name).read_bytes()
        assert answer.headers["Content-Type"] == f"{kind}; charset=utf-8"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert answer.headers["Cache-Control"] == "no-cache"


@stepped
async def test_who_has_it_is_sent_so():
    async with served("sow.js") as place:
        etag = (await place.get("/sow.js")).headers["ETag"]
        for known in (etag, f'"old", W/{etag}', "*"):
            answer = await place.ask("GET", "/sow.js", headers={"If-None-Match": known})
            assert (answer.status, answer.body, answer.headers["ETag"]) == (304, b"", etag)
        other = {"If-None-Match": '"old"'}
        assert (await place.ask("GET", "/sow.js", headers=other)).status == 200


@stepped
async def test_a_parameter_reaches_no_file():
    async with served("sow.js") as place:
        assert (await place.get("/sow.js?version=1")).status == 400
