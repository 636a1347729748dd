"""What is in the console of others' work is what was packed, whole and with its licence."""

import re

from tests.server.vendored import PACKAGES, PLACE, SUMS, sums, taken


def test_the_files_are_those_that_were_packed():
    assert SUMS.read_text() == sums()
    assert sorted(path.name for path in PLACE.iterdir()) == sorted([*taken(), SUMS.name])


def test_a_changed_file_is_found(monkeypatch, tmp_path):
    for name in taken():
        (tmp_path / name).write_bytes((PLACE / name).read_bytes())
    monkeypatch.setattr("tests.server.vendored.PLACE", tmp_path)
    assert sums() == SUMS.read_text()
    (tmp_path / taken()[0]).write_bytes(b"planted")
    assert sums() != SUMS.read_text()


def test_each_package_is_of_one_version_and_brings_its_licence():
    for package, files in PACKAGES.items():
        assert re.fullmatch(r"(@[\w-]+/)?[\w-]+@\d+\.\d+\.\d+", package)
        (licence,) = [name for name in files.values() if name.endswith(".LICENSE")]
        assert re.search(r"MIT|Apache License", (PLACE / licence).read_text())


def test_no_style_loads_fonts_from_elsewhere():
    for style in PLACE.glob("*.css"):
        assert "@import" not in style.read_text()
        assert "url(" not in style.read_text()
