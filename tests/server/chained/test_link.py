"""A connection that is lost and resumed: nothing is missed, nothing comes twice."""

from tests.server.chained.chains import ALL, begin, lines_up_to, numbers


def test_dropped_connections_lose_and_repeat_nothing(pair):
    with pair.chained.socket() as one, pair.chained.socket() as own:
        begin(one, ALL)
        own.ask({"c": "subscribe", "t": "orders", "bm": "0"})
        for number in range(30):
            if number % 7 == 3:
                pair.upstream.call(pair.relay.drop)
            pair.upstream.publish("orders", {"id": number})
        assert numbers(lines_up_to(one, 29)) == [*range(30)]
        assert numbers(lines_up_to(own, 29)) == [*range(30)]
