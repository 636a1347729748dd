"""Mergers of a configuration: what a topic may name in its `Merger`."""


def current(current, _new):
    return current


def new(_current, new):
    return new


def both(current, new):
    return {"id": new["id"], "v": current["v"] + new["v"]}


def neither(_current, _new):
    return None


def broken(_current, _new):
    raise RuntimeError("no")


def in_place(current, new):
    current["v"] += new["v"]
    return current


def into_the_newer(current, new):
    new["v"] += current["v"]
    return new


def numbers(current, new):
    return current if new > 5 else current + new


def one(current, _new):
    return current
