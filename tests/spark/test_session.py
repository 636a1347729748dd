"""A session's settings are defaults: whatever somebody has said goes first."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sow.spark import session
from sow.spark.session import (
    by_arguments,
    by_defaults,
    existing_settings,
    has_session,
    is_submitted,
    problems,
    settings_for,
)


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


HOST = "spark.driver.host"


def settings(master=None, conf=None, said=None, by_submit=False):
    return settings_for("sow", master, conf or {}, said or {}, by_submit)


def test_nothing_said_is_all_cores_of_this_machine_and_quiet():
    found = settings()
    assert (found["spark.master"], found[HOST]) == ("local[*]", "127.0.0.1")
    assert found["spark.ui.enabled"] == "false"
    assert found["spark.sql.session.timeZone"] == "UTC"


def test_what_the_caller_asks_for_goes_before_a_file():
    said = {"spark.master": "spark://file:7077", "spark.driver.memory": "9g"}
    found = settings("local[3]", {"spark.driver.memory": "2g"}, said)
    assert (found["spark.master"], found["spark.driver.memory"]) == ("local[3]", "2g")
    assert found["spark.sql.shuffle.partitions"] == "3"


def test_what_a_file_says_is_not_set_again():
    said = {"spark.master": "spark://file:7077", "spark.driver.memory": "9g"}
    found = settings(said=said)
    assert not {"spark.master", "spark.driver.memory", HOST} & found.keys()


def test_what_was_said_to_spark_submit_stands():
    said = {
        "spark.master": "spark://submit:7077",
        "spark.app.name": "job",
        "spark.sql.session.timeZone": "Europe/Berlin",
        "spark.executor.memory": "4g",
    }
    requested = {"spark.executor.memory": "1g", "spark.sql.ansi.enabled": "true"}
    found = settings("local[2]", requested, said, by_submit=True)
    assert not said.keys() & found.keys()
    assert found["spark.sql.ansi.enabled"] == "true"
    assert not {HOST, "spark.driver.bindAddress", "spark.ui.enabled"} & found.keys()


def test_a_driver_of_a_cluster_listens_where_it_can_be_reached():
    for master in ("spark://host:7077", "yarn", "k8s://https://host:443"):
        assert HOST not in settings(master)


def test_arguments_for_spark_submit_are_understood():
    words = ["--master", "yarn", "--conf", "spark.a=b=c", "--driver-memory=3g", "pyspark-shell"]
    assert by_arguments(words) == {
        "spark.master": "yarn",
        "spark.a": "b=c",
        "spark.driver.memory": "3g",
    }
    assert existing_settings({"PYSPARK_SUBMIT_ARGS": "--conf 'spark.a=b c' pyspark-shell"}) == {
        "spark.a": "b c"
    }


def test_sparks_file_of_defaults_is_understood(tmp_path):
    (tmp_path / "spark-defaults.conf").write_text(
        "# ours\n\nspark.master   spark://host:7077\nspark.a=b\nspark.b  x y\n"
    )
    assert by_defaults({"SPARK_CONF_DIR": str(tmp_path)}) == {
        "spark.master": "spark://host:7077",
        "spark.a": "b",
        "spark.b": "x y",
    }
    assert by_defaults({"SPARK_CONF_DIR": str(tmp_path / "none")}) == {}


JOB = """
import json
spark = session("ours", "local[7]", {"spark.sql.ansi.enabled": "false"})
conf = dict(spark.sparkContext.getConf().getAll())
names = ["spark.master", "spark.app.name", "spark.driver.host", "spark.sql.ansi.enabled"]
print(json.dumps({name: conf.get(name) for name in names}))
spark.stop()
"""


@pytest.mark.slow  # a Java of its own; make cluster submits jobs, too
@pytest.mark.spark
def test_a_job_of_spark_submit_runs_as_it_was_sent(tmp_path):
    pyspark = pytest.importorskip("pyspark")
    from sow.spark.java import ensure_java

    job = tmp_path / "job.py"
    job.write_text(JOB)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    words = ["--master", "local[1]", "--name", "theirs", "--conf", "spark.sql.ansi.enabled=true"]
    words += ["--conf", "spark.driver.host=localhost", "--conf", "spark.ui.enabled=false"]
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "JAVA_HOME": str(ensure_java()), "PYTHONPATH": root}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [submit, *words, job], capture_output=True, text=True, env=environment, check=False
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert said, done.stderr
    assert json.loads(said[-1]) == {
        "spark.master": "local[1]",
        "spark.app.name": "theirs",
        "spark.driver.host": "localhost",
        "spark.sql.ansi.enabled": "true",
    }


@pytest.mark.spark
def test_what_spark_cannot_parse_is_one_sentence(spark):
    good = "SELECT sym, count(*) FROM source GROUP BY sym, window(ts, '1 minute')"
    bad = "SELECT sym FROM source GROUP sym"
    one, two = problems(spark._jvm, [good, bad])
    assert one == ""
    assert "Syntax error" in two
    assert "\n" not in two


@pytest.mark.spark
@pytest.mark.edge
def test_a_thread_reads_and_writes_by_the_session_that_it_asks_for(spark, server):
    """It finds the data source there. What a thread without it finds is not shown here."""

    def copied(begin):
        def work():
            try:
                one = begin()
                rows = one.createDataFrame([("t",)], "id string")
                rows.write.format("sow").options(url=server.url, topic="orders").mode(
                    "append"
                ).save()
                read = one.read.format("sow").options(url=server.url, topic="orders").load()
                found.append(read.count())
            except Exception as error:
                found.append(str(error))

        found = []
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return found[0]

    assert copied(session) == 1
    assert copied(has_session_then) == 1


def has_session_then():
    assert has_session()
    return session()
