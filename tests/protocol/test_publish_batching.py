"""Publishes put together say what they would say one by one, and nothing else is put together."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.protocol import publish_batching
from sow.protocol.publish_batching import LONG_BYTES_MIN, PublishBatch, coalesce, read_frames
from sow.protocol.wire import Refused, read_frame

HEARTBEAT = b'{"c":"heartbeat"}'


def line(**fields):
    return json.dumps({"c": "publish", "t": "orders"} | fields, separators=(",", ":")).encode()


def framed(*bodies, **fields):
    return b"\n".join([line(n=len(bodies), **fields), *bodies])


def singly(reads):
    """What was read as single commands, as they can be compared."""
    commands = [
        command
        for read in reads
        for command in (read.singly() if isinstance(read, PublishBatch) else (read,))
    ]
    return [str(one.error) if isinstance(one, Refused) else one for one in commands]


def counts(reads):
    return [len(read.ends) if isinstance(read, PublishBatch) else 1 for read in reads]


odd = st.sampled_from(
    [
        *(b"", b" ", b"\n", b"x", b"{}", HEARTBEAT, line(), line(d={}) + b" ", line(d={}) + b"\n"),
        *(line(d={}, k="1"), line(d={}, x=5), line(d={}, n=1), line(n=0), line(n=2) + b"\n{}"),
        *(line(d={}, a=acks) for acks in ("nope", "stats", " ", "processed,,")),
        *(line(d={}, cid="x" * 101), line(d={}, z=1)),
        *(line(d={}) + line(d={}), line(d={}) + b"\n" + line(d={}), framed(b"{}", b"")),
        *(b'{"c":"publish","t":"orders","d":{"a":{}', b'{"c":"publish","t":1,"d":{}}', b"\xff"),
        *(line(d={}, seq=seq) for seq in (1, 2, 0, "1", 2**63)),
        *(framed(b"{}", seq=3), line(d={"seq": 1})),
        *(framed(b"{}", enc="base64"), line(d={}, enc="base64"), line(d={}, a=["persisted"])),
    ]
)
plain = st.builds(
    lambda make, t, acks: make(t=t, **acks),
    st.sampled_from(
        [lambda **more: line(d={"id": 1}, **more), lambda **more: framed(b"1", b"2", **more)]
    ),
    st.sampled_from(["orders", "other", "x" * 2000]),
    st.fixed_dictionaries(
        {},
        optional={
            "cid": st.sampled_from(["1", 2, 'q"', "é", 10**30]),
            "a": st.sampled_from(["", "persisted", "completed, processed"]),
        },
    ),
)


@given(st.lists(plain | odd, max_size=8))
def test_frames_read_together_are_the_frames_read_one_by_one(frames):
    read = read_frames(frames)
    assert singly(read) == singly(command for frame in frames for command in read_frame(frame))
    for many in read:
        if isinstance(many, PublishBatch):
            commands = list(many.singly())
            bodies = [command.bodies for command in commands]
            assert many.bodies == [body for each in bodies for body in each]
            assert many.ends == [sum(map(len, bodies[: n + 1])) for n in range(len(bodies))]
            assert {(one.topic, one.framed, one.enc) for one in commands} == {
                (many.topic, many.framed, many.enc)
            }


twice = st.sampled_from(
    [
        line(d={"a": {}}) + line(d={}),
        b'{"c":"publish","t":"orders","d":{"a":1},"d":{"b":{}}}',
        b'{"c":"publish","t":"orders","d":{"a":1},"more":{"b":{}}}',
        b'{"c":"publish","t":"\\"d\\":","d":{"d":{}}}',
        b'{"c":"publish","t":"orders","cid":"\\\\","d": \t{"a":"}}"} }',
        b'{"c":"publish","d":{"a":{}},"t":"orders"}',
        b'{"c":"publish","d":{"a":1},"t":{"d":{}}}',
        b'{"c":"publish","t":"orders","d":{"a":{"d":null}}}',
    ]
)


@given(st.lists(plain | odd | twice, max_size=8))
def test_a_long_line_is_cut_where_its_body_begins_or_what_is_cut_is_no_message(frames):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publish_batching, "LONG_BYTES_MIN", 0)
        read = read_frames(frames)
    assert singly(read) == singly(command for frame in frames for command in read_frame(frame))
    for one in read:
        if not isinstance(one, PublishBatch) or one.framed:
            continue
        for body, command in zip(one.bodies, one.singly(), strict=True):
            if is_json(body):
                assert [body] == list(command.bodies)


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def test_the_body_of_a_long_line_is_not_looked_at():
    text = b'{"id":1,"not JSON":' + b"x" * LONG_BYTES_MIN + b"}"
    frame = b'{"c":"publish","t":"orders","cid":"7","d":' + text + b"}"
    (read,) = read_frames([frame])
    assert (read.bodies, read.acks) == ([text], [("7", ("processed",))])
    (command,) = read.singly()
    assert isinstance(command, Refused)
    after = b'{"c":"publish","t":"orders","d":' + b'{"a":"%b"}' % (b"x" * LONG_BYTES_MIN)
    (read,) = read_frames([after + b',"cid":"7"}'])
    assert read.acks == [("7", ("processed",))]


def test_frames_of_one_are_read_as_one():
    assert counts(read_frames([line(d={"id": n}) for n in range(500)])) == [500]
    assert counts(read_frames([framed(b"{}", cid=str(n)) for n in range(500)])) == [500]
    assert counts(read_frames([line(d={}), line(d={}, t="other"), framed(b"{}")])) == [1, 1, 1]
    assert counts(read_frames([line(d={}), HEARTBEAT, line(d={})])) == [1, 1, 1]


def test_one_that_came_alone_is_no_command_either():
    assert counts(read_frames([line(d={"id": 1})])) == [1]
    (alone,) = read_frames([framed(b"{}", b"{}", cid="1")])
    assert isinstance(alone, PublishBatch)
    assert list(alone.parts(1)) == [alone], "a publish is never split"


@pytest.mark.parametrize("begun", [b'{"c":"publish","t":"a","d":[1', line(d={}) + b"{"])
def test_no_value_spans_two_frames(begun):
    read = read_frames([begun, line(d={})])
    assert [isinstance(one, Refused) for one in read] == [True, False]


def test_each_is_acknowledged_with_the_bookmark_of_its_last_message():
    (publish_batching,) = read_frames(
        [
            framed(b"{}", b"{}", cid="1"),
            framed(b"{}"),
            framed(b"{}", cid=2, a="persisted,processed"),
            framed(b"{}", a="completed"),
        ]
    )
    assert list(publish_batching.requested(10)) == [
        ("processed", "1", 12),
        ("processed", "2", 14),
        ("persisted", "2", 14),
        ("completed", None, 15),
    ]


def test_plain_publishes_of_one_frame_are_put_together():
    def runs(*lines):
        return counts(coalesce(list(read_frame(b"\n".join(lines)))))

    one, other = line(d={}), line(d={}, t="other")
    assert runs(one, one, other, one) == [2, 1, 1]
    assert runs(one, HEARTBEAT, one) == [1, 1, 1]
    assert runs(one, line(d={}, x=5), one) == [1, 1, 1]
    assert runs(framed(b"{}"), framed(b"{}"), one) == [2, 1]


def test_what_is_put_together_is_found_again_one_by_one():
    commands = [*read_frame(b"\n".join([line(d={"id": n}, cid=n) for n in range(3)]))]
    (publish_batching,) = coalesce(commands)
    assert singly([publish_batching]) == commands
    assert list(publish_batching.requested(0)) == [("processed", str(n), n + 1) for n in range(3)]


def test_parts_are_bounded_by_messages_and_never_split_a_publish():
    frames = [b'{"c":"publish","t":"a","n":%d,"cid":"%d"}\n' % (n, n) + b"\n".join([b"1"] * n)
              for n in (1, 2, 1, 5, 1)]  # fmt: skip
    (together,) = read_frames(frames)
    parts = list(together.parts(3))
    assert [list(part.ends) for part in parts] == [[1, 3], [1], [5], [1]]
    assert [len(part.bodies) for part in parts] == [3, 1, 5, 1]
    requested = [(cid, end) for part in parts for _kind, cid, end in part.requested(0)]
    assert requested == [("1", 1), ("2", 3), ("1", 1), ("5", 5), ("1", 1)]
    assert [len(command.bodies) for part in parts for command in part.singly()] == [1, 2, 1, 5, 1]
    assert list(together.parts(99)) == [together]


def test_numbered_publishes_are_read_together_and_know_whether_they_follow():
    frames = [line(seq=7, d={"id": 1}), framed(b"{}", b"{}", seq=8), framed(b"{}", seq=10)]
    single, *_ = read_frames(frames[:1])
    assert (single.seqs, single.follows(6), single.follows(7)) == ([7], True, False)
    one, two = read_frames(frames)
    assert (one.seqs, two.seqs) == ([7], [8, 10])
    assert two.follows(7)
    assert not two.follows(6)
    first, second = two.parts(1)
    assert (first.seqs, second.seqs) == ([8], [10])
    (together,) = coalesce([*read_frame(frames[1]), *read_frame(frames[2])])
    assert together.seqs == [8, 10]


def test_numbered_and_other_publishes_are_not_put_together():
    frames = [line(seq=7, d={}), line(d={})]
    assert all(getattr(read, "seqs", None) is None for read in read_frames(frames))
    assert len(list(coalesce([*read_frame(frames[0]), *read_frame(frames[1])]))) == 2
    (other,) = read_frames([line(d={"seq": 1})])
    assert other.seqs is None


@pytest.mark.parametrize("seq", [0, -1, 2**63, "1", None, 1.5])
def test_what_is_no_number_is_not_read_as_one(seq):
    for read in read_frames([line(d={}, seq=seq)]):
        assert not isinstance(read, PublishBatch)


def test_the_body_of_a_long_numbered_line_is_cut_too():
    long = line(seq=1, d={"id": "x" * LONG_BYTES_MIN})
    (batch,) = read_frames([long, line(seq=2, d={})])
    assert batch.seqs == [1, 2]
    assert singly([batch]) == singly([*read_frame(long), *read_frame(line(seq=2, d={}))])
