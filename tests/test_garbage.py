"""What a test file has left is collected at its end, whoever remembers it or begins more."""

import weakref

from aiohttp import web, web_app

from tests.garbage import collect


class Handler:
    async def __call__(self, request):
        raise AssertionError("nobody requests anything")


def test_an_application_that_aiohttp_remembers_is_collected():
    app, handler = web.Application(), Handler()
    app.freeze()
    web_app._cached_build_middleware(handler, (app,))
    found = weakref.ref(app)
    del app, handler
    assert found() is not None
    collect()
    assert found() is None


def test_what_begins_as_something_ends_is_collected_as_well():
    begun = []

    class Ending:
        def __init__(self, rounds):
            self.me, self.rounds = self, rounds
            begun.append(rounds)

        def __del__(self):
            if self.rounds:
                Ending(self.rounds - 1)

    Ending(3)
    collect()
    assert begun == [3, 2, 1, 0]
