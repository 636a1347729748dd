"""Where tasks write files of their own: a path, or what Arrow reaches by a scheme."""

import pytest
from pyarrow.fs import LocalFileSystem

from sow.errors import ClientError
from sow.spark.storage import opened


def test_a_path_is_a_directory_of_this_machine(tmp_path):
    files, directory = opened(str(tmp_path), "LatePath")
    assert isinstance(files, LocalFileSystem)
    assert directory == str(tmp_path)


def test_a_scheme_may_be_called_as_hadoop_does(tmp_path):
    files, directory = opened(tmp_path.as_uri(), "LatePath")
    assert (files.type_name, directory) == ("local", str(tmp_path))
    files, directory = opened("s3a://bucket/late?region=eu-west-1", "LatePath")
    assert (files.type_name, directory) == ("s3", "bucket/late")


def test_a_place_that_cannot_be_reached_is_named():
    with pytest.raises(ClientError, match=r"LatePath odd://bucket/x: .*; give a path"):
        opened("odd://bucket/x", "LatePath")
