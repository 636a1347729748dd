"""The pictures of the documents can be made: one of them is, whole, and all of them are there."""

import struct
import zlib

import pytest

from tests.browser.pictures import PICTURES, PLACE, SIZE, shown, take

pytestmark = pytest.mark.browser

SHADES_MIN = 50
"""Letters and lines have so many different bytes in a picture; an empty page has a few."""


def size_and_shades(path):
    """How large a picture is, and how many different bytes its lines have."""
    data, at, packed = path.read_bytes(), 8, b""
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        packed += data[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += 12 + length
    width, height = struct.unpack_from(">II", data, 16)
    return {"width": width, "height": height}, len(set(zlib.decompress(packed)))


def test_a_picture_is_made_of_what_its_page_shows(browser, tmp_path):
    with shown() as server:
        size, shades = size_and_shades(take(browser, server, "explain", tmp_path, lambda: None))
    assert size == SIZE
    assert shades > SHADES_MIN


@pytest.mark.parametrize("name", PICTURES)
def test_the_documents_have_each_picture(name):
    size, shades = size_and_shades(PLACE / f"console-{name}.png")
    assert size == SIZE
    assert shades > SHADES_MIN
