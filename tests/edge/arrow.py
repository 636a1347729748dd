"""Arrow over HTTP as a client reads and sends it: tables, rows, staged chunks and their commit."""

import json

import pyarrow as pa

ARROW = "application/vnd.apache.arrow.stream"


def table(answer):
    assert answer.status == 200, answer.body
    return pa.ipc.open_stream(answer.body).read_all()


def rows(answer):
    return table(answer).to_pylist()


def documents(answer):
    return [json.loads(row["value"]) for row in rows(answer)]


def stream(**columns):
    batch = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_table(batch)
    return sink.getvalue().to_pybytes()


def staged(server, topic, values, epoch=0, writer="w", part=0, attempt="a", chunk=0, **more):
    columns = {name: more.pop(name) for name in ("op", "key") if name in more}
    return server.request(
        "POST",
        f"/v1/writes/{writer}/{epoch}?topic={topic}&part={part}&attempt={attempt}&chunk={chunk}"
        + "".join(f"&{name}={value}" for name, value in more.items()),
        data=stream(value=[json.dumps(v) if isinstance(v, dict) else v for v in values], **columns),
        headers={"Content-Type": ARROW},
    )


def committed(server, topic, *parts, epoch=0, writer="w", **more):
    body = {
        "topic": topic,
        "parts": [
            {"part": part, "attempt": attempt, "chunks": chunks, "rows": count}
            for part, attempt, chunks, count in parts
        ],
        **more,
    }
    path = f"/v1/writes/{writer}/{epoch}/commit"
    return server.request("POST", path, data=json.dumps(body).encode())
