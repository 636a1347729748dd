"""Spark settings that exist before a session, by their source, and their precedence."""

import pytest

from sow.spark.session_conf import by_arguments, by_defaults, existing_settings, is_submitted


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--master", "local[2]"], {"spark.master": "local[2]"}),
        (["--master=local[2]"], {"spark.master": "local[2]"}),
        (["--conf", "spark.x=a=b"], {"spark.x": "a=b"}),
        (["-c", " spark.x = 1"], {"spark.x": " 1"}),
        (["--conf=spark.x=1"], {"spark.x": "1"}),
        (["--jars", "x.jar", "job.py"], {}),
        (["--master"], {"spark.master": ""}),
    ],
)
def test_settings_in_arguments(words, found):
    assert by_arguments(words) == found


@pytest.mark.parametrize("between", [" ", "  ", "=", " = ", "\t", ": "])
def test_settings_in_the_file_of_defaults(tmp_path, between):
    text = f"# a comment\n\n! another\nspark.x{between}1 2\n"
    (tmp_path / "spark-defaults.conf").write_text(text)
    assert by_defaults({"SPARK_CONF_DIR": str(tmp_path)}) == {"spark.x": "1 2"}


def test_the_file_is_looked_for_where_spark_looks(tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.x 1")
    assert by_defaults({"SPARK_HOME": str(tmp_path)}) == {"spark.x": "1"}
    assert by_defaults({"SPARK_HOME": str(tmp_path), "SPARK_CONF_DIR": "/nowhere"}) == {}
    assert by_defaults({}) == {}


def test_words_of_the_shell_go_before_the_file(tmp_path):
    (tmp_path / "spark-defaults.conf").write_text("spark.master yarn\nspark.y 2")
    environment = {
        "SPARK_CONF_DIR": str(tmp_path),
        "PYSPARK_SUBMIT_ARGS": '--master "local[2]" pyspark-shell',
    }
    assert existing_settings(environment) == {"spark.master": "local[2]", "spark.y": "2"}
    assert not is_submitted(environment)
    assert is_submitted({"PYSPARK_GATEWAY_PORT": "1"})
