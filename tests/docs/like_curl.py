"""What the pages ask `curl` for, done by Python: for machines without one.

    python tests/docs/like_curl.py -s -H 'Accept: text/csv' http://127.0.0.1:8080/v1/topics

It knows the options that the pages use and no other. Where there is a `curl`, `test_examples.py`
plays the pages with both, so that this one prints what that one does.
"""

import argparse
import gzip
import http.client
import string
import sys
from pathlib import Path
from urllib.parse import quote, urlsplit


def parser():
    found = argparse.ArgumentParser("curl", allow_abbrev=False)
    found.add_argument("url")
    for name in ("-s", "-N", "-G", "-I", "-i", "--compressed"):
        found.add_argument(name, action="store_true")
    found.add_argument("-H", action="append", default=[])
    found.add_argument("-X")
    found.add_argument("-D", type=Path)
    found.add_argument("-o", type=Path)
    found.add_argument("-d", dest="data", action="append", default=[])
    for name, reading in (("--data-urlencode", encoded), ("--data-binary", from_standard_input)):
        found.add_argument(name, dest="data", action="append", type=reading)
    return found


def encoded(text):
    """`name=content`, of which only the content is encoded."""
    name, _, content = text.partition("=")
    return f"{name}={quote(content, safe='')}"


def from_standard_input(text):
    if text != "@-":
        raise argparse.ArgumentTypeError("only @- is known")
    return sys.stdin.read()


def question(requested):
    """Method, path, body and headers."""
    parts, body = urlsplit(requested.url), "&".join(requested.data)
    path, query = parts.path or "/", [*filter(None, [parts.query, requested.G and body])]
    headers = {"Accept": "*/*", "User-Agent": "curl"}
    if requested.compressed:
        headers["Accept-Encoding"] = "gzip"
    posts = bool(requested.data) and not requested.G
    if posts:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    for line in requested.H:
        name, _, value = line.partition(":")
        headers = {one: text for one, text in headers.items() if one.lower() != name.lower()}
        headers[name] = value.strip()
    method = requested.X or ("HEAD" if requested.I else "POST" if posts else "GET")
    # An address is sent as it was written, but for blanks and what is no ASCII.
    target = quote("?".join([path, "&".join(query)] if query else [path]), safe=string.punctuation)
    return method, target, body.encode() if posts else None, headers


def main(words):
    requested = parser().parse_args(words)
    connection = http.client.HTTPConnection(urlsplit(requested.url).netloc)
    method, target, body, headers = question(requested)
    connection.putrequest(method, target, skip_accept_encoding=True)
    for name, value in headers.items():
        connection.putheader(name, value)
    if body is not None:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    answer = connection.getresponse()
    head = f"HTTP/1.1 {answer.status} {answer.reason}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in answer.getheaders()) + "\r\n"
    if requested.D:
        requested.D.write_text(head)
    with requested.o.open("wb") if requested.o else sys.stdout.buffer as out:
        if requested.I or requested.i:
            out.write(head.encode())
        if answer.headers["Content-Encoding"] == "gzip":
            out.write(gzip.decompress(answer.read()))
            return
        # As it comes, since a stream does not end.
        while part := answer.read1():
            out.write(part)
            out.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
