"""Options and settings of pipelines: each once, and where it has an effect."""

import pytest

TO_TOPIC = "<Sink><Topic>orders</Topic>{}</Sink>"
TO_FILES = "<Sink><Format>csv</Format><Path>out</Path>{}</Sink>"
SINK = TO_FILES.format("")


@pytest.fixture
def findings(instance):
    def of(source="", sink=SINK, more=""):
        loaded = instance(
            "<SOW><Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
            "</SOW><Pipelines><Pipeline><Name>p</Name><Source><Format>sow</Format>"
            f"<Topic>orders</Topic>{source}</Source>{sink}{more}</Pipeline></Pipelines>"
        )
        return [str(found) for found in loaded.findings]

    return of


def named(*names, element="Option"):
    return "".join(f'<{element} Name="{name}" Value="5"/>' for name in names)


def test_an_option_is_given_once_however_it_is_written(findings):
    (found,) = findings(source=named("readMode", "max_rows_per_trigger", "maxRowsPerTrigger"))
    assert "Option: maxRowsPerTrigger is given in line 1 already; remove one of them" in found
    (found,) = findings(sink=TO_TOPIC.format(named("deadLetterPath", "deadLetterPath")))
    assert "is given in line 1 already" in found
    # Spark's own do not go by case either, and an underscore is a letter to it.
    (found,) = findings(sink=TO_FILES.format(named("header", "Header")))
    assert "Header is given in line 1 already" in found
    assert findings(sink=TO_FILES.format(named("he_ader", "header"))) == []


def test_a_setting_is_given_once(findings):
    (found,) = findings(more=named("spark.a", "spark.b", "spark.a", element="Setting"))
    assert "Setting: spark.a is given in line 1 already" in found


@pytest.mark.parametrize(
    ("setting", "master", "says"),
    [
        ("driver.memory", "local[2]", "Spark passes over driver.memory"),
        ("driver.memory", "local[2]", "did you mean spark.driver.memory?"),
        ("spark.master", "local[2]", "is set by the element Master"),
        ("spark.remote", "sc://host", "is set by the element Master"),
        ("spark.driver.memory", "sc://host", "has no effect on a running Spark"),
        ("spark.executor.cores", "sc://host", "set it where the Connect server is started"),
    ],
)
def test_a_setting_stands_where_it_has_an_effect(findings, setting, master, says):
    more = f"<Master>{master}</Master>{named(setting, element='Setting')}"
    (found,) = findings(more=more)
    assert says in found


@pytest.mark.parametrize("master", ["local[2]", "spark://host:7077"])
def test_what_a_driver_is_started_with_is_said_of_one_that_the_pipeline_starts(findings, master):
    settings = named("spark.driver.memory", "spark.jars.packages", element="Setting")
    assert findings(more=f"<Master>{master}</Master>{settings}") == []


def test_the_options_that_a_pipeline_sets_itself_are_its_own(findings):
    for name in ("writer", "epoch", "allowEmpty", "rerun", "topic"):
        (found,) = findings(sink=TO_TOPIC.format(named(name)))
        assert "remove it" in found
