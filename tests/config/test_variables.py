import pytest

from sow.config import loads


def test_a_variable_is_taken_from_the_command_line_before_the_environment(instance):
    loaded = instance(
        "<Listen>${HOST}:${PORT}</Listen>",
        variables={"PORT": "9000"},
        environment={"PORT": "1", "HOST": "0.0.0.0"},
    )
    assert (loaded.configuration.host, loaded.configuration.port) == ("0.0.0.0", 9000)


def test_an_undefined_variable_is_named_with_what_to_do(instance, only):
    text = only(instance("\n<Listen>${PROT}</Listen>", variables={"PORT": "9000"}))
    assert text.startswith("config.xml:2: Listen: the variable PROT is not defined")
    assert "did you mean PORT?" in text
    assert "--set PROT=VALUE" in text


def test_a_variable_is_never_markup_nor_expanded_twice(instance, only):
    nested = instance("<DataDirectory>${A}</DataDirectory>", variables={"A": "${B}", "B": "b"})
    assert nested.configuration.data_directory == "${B}"
    markup = instance("<Listen>${A}</Listen>", variables={"A": "</Listen><Nope/>"})
    assert "'</Listen><Nope/>' is not an address" in only(markup)


def test_a_variable_works_in_an_attribute(orders):
    loaded = orders('<Durability FlushInterval="${F}">persistent</Durability>')
    assert "the variable F is not defined" in str(loaded.findings[0])


@pytest.mark.parametrize("text", ["${}", "${a b}", "${1}"])
def test_what_is_no_name_is_refused(instance, only, text):
    assert "does not name a variable" in only(instance(f"<DataDirectory>{text}</DataDirectory>"))


def test_a_dollar_sign_alone_is_itself(copy):
    loaded = copy("<Filter>/side LIKE 'y$'</Filter>")
    assert loaded.configuration.topics[1].filter == "/side LIKE 'y$'"


def test_the_place_of_the_file_is_built_in():
    text = "<SOWConfig><Name>x</Name><DataDirectory>${AMPS_CONFIG_DIRECTORY}/d</DataDirectory>"
    loaded = loads(text + "</SOWConfig>", file="/etc/sow/c.xml")
    assert loaded.configuration.data_directory == "/etc/sow/d"
