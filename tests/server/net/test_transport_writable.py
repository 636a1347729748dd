"""Who waits to write on is called once, when the socket takes more again."""

from sow.server.net.transport_writable import TransportWritable


def test_everybody_who_waits_is_called_in_order_and_once():
    flow, called = TransportWritable(), []
    first, second = lambda: called.append("first"), lambda: called.append("second")
    flow.pause()
    for one in (first, second, first):
        flow.wait(one)
    assert (flow.paused, called) == (True, [])
    flow.resume()
    assert (flow.paused, called) == (False, ["first", "second"])
    flow.pause()
    flow.resume()
    assert called == ["first", "second"]


def test_who_is_forgotten_is_not_called_and_does_not_cut_off_others():
    flow, called = TransportWritable(), []
    first, second = lambda: called.append("first"), lambda: called.append("second")
    flow.pause()
    flow.wait(first)
    flow.wait(second)
    flow.forget(first)
    flow.forget(first)
    flow.resume()
    assert called == ["second"]


def test_who_fills_the_socket_again_waits_for_the_next_time():
    flow, called = TransportWritable(), []

    def write():
        called.append(flow.paused)
        flow.pause()
        flow.wait(write)

    write()
    flow.resume()
    flow.resume()
    assert called == [False, False, False]
