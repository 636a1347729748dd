import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.cli.main import SENTENCES, SUBCOMMANDS
from tests.cases import all_cases

DOCUMENTED = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def run(*arguments):
    return CliRunner().invoke(main, arguments)


def test_a_server_that_is_not_there_is_a_sentence():
    result = run("query", "orders", "--url", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert result.stderr == (
        "sow: no server answers at http://127.0.0.1:1 (connection refused); start one with sow "
        "serve, or give the address of one (--url or SOW_URL; url in a program)\n"
    )


def test_the_address_may_come_from_the_environment():
    result = CliRunner().invoke(main, ["query", "orders"], env={"SOW_URL": "ftp://x"})
    assert (result.exit_code, "'ftp://x' is not an address" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    "url", ["http://h:80:", "http://[::1", "http://h:x", "http://:80", "ws://h"]
)
def test_what_is_no_address_is_a_sentence(url):
    result = run("query", "orders", "--url", url)
    assert (result.exit_code, result.stderr) == (
        1, f"sow: '{url}' is not an address such as http://127.0.0.1:8080\n"
    )  # fmt: skip


def test_delete_wants_exactly_one_selector():
    assert run("delete", "orders").exit_code == 2
    assert run("delete", "orders", "--filter", "1=1", "--keys", "1").exit_code == 2


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, ""),
        (OSError(28, "No space left on device", "out.json"), 1, "sow: out.json: No space left"),
        (OSError("something"), 1, "sow: something"),
        (
            ModuleNotFoundError(name="bson.codec"),
            1,
            "sow: sow check needs the server's libraries, and bson.codec is not installed; "
            "pip install 'sow[server]'\n",
        ),
    ],
)
def test_what_ends_a_command_is_an_exit_code_and_a_sentence(monkeypatch, error, code, said):
    def broken(*_arguments):
        raise error

    monkeypatch.setattr("sow.cli.commands.check.load", broken)
    result = run("check")
    assert (result.exit_code, result.stderr[: len(said)]) == (code, said)
    assert "Traceback" not in result.output


def test_a_command_without_its_libraries_is_listed_and_a_missing_module_of_ours_is_a_bug(
    monkeypatch,
):
    def missing(name):
        raise ModuleNotFoundError(name=lacking)

    monkeypatch.setattr(sys.modules["sow.cli.main"], "_imported", missing)
    lacking = "lmdb"
    assert "  serve " in run("--help").stdout
    refused = run("serve", "--topic", "quotes:/symbol", "--help")
    assert (refused.exit_code, refused.stderr) == (
        1,
        "sow: sow serve needs the server's libraries, and lmdb is not installed; "
        "pip install 'sow[server]'\n",
    )
    lacking = "sow.cli.commands.serve"
    assert isinstance(run("serve").exception, ModuleNotFoundError)


def test_all_commands_are_listed():
    listed = run("--help").stdout
    assert all(f"  {name} " in listed for name in SUBCOMMANDS)
    assert list(SENTENCES) == list(SUBCOMMANDS)
    whole = " ".join(listed.split())
    assert [name for name, sentence in SENTENCES.items() if sentence not in whole] == []


@all_cases("name", SUBCOMMANDS)
def test_the_list_has_the_first_sentence_of_a_command(name):
    command = main.get_command(click.Context(main), name)
    shown = command.get_short_help_str(1_000)
    assert shown == click.Command(name, help=SENTENCES[name]).get_short_help_str(1_000)


HEAVY = (
    "aiohttp", "asyncio", "lark", "lmdb", "lxml", "numpy", "prometheus_client", "pyarrow", "rich",
    "sow.client", "sow.config", "sow.core.definitions", "sow.engine", "sow.expressions",
    "sow.server",
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "loaded"),
    [
        (["--help"], []),
        (["--version"], []),
        (["query", "--help"], ["aiohttp", "asyncio", "rich", "sow.client", "sow.core.definitions"]),
    ],
)
def test_a_command_line_loads_no_more_than_it_needs(words, loaded):
    code = (
        "import sys\nfrom sow.cli import main\n"
        f"try: main({words!r})\nexcept SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    assert said_by(code) == str(loaded)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["qery"], "there is no command 'qery'; did you mean query?"),
        (["xyzzy"], "there is no command 'xyzzy'; sow --help lists all"),
        (["token", "creat"], "Did you mean 'create'?"),
        (["query", "orders", "--filtr", "1=1"], "Did you mean '--filter'?"),
    ],
)
def test_a_mistyped_word_is_wrong_usage_and_sent_what_was_meant(words, said):
    result = run(*words)
    assert (result.exit_code, result.stderr.rstrip().endswith(said)) == (2, True)


def all_commands(command=main, name="sow"):
    """Every command with its whole name."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for one in command.list_commands(context):
            yield from all_commands(command.get_command(context, one), f"{name} {one}")


def test_the_help_of_every_command_has_an_example_that_it_takes(monkeypatch):
    for kind in (click.File, click.Path):
        monkeypatch.setattr(kind, "convert", lambda _self, value, *_: value)
    for name, _ in all_commands():
        said = run(*name.split()[1:], "--help").stdout
        examples = said.partition("\n  For example:\n")[2].splitlines()
        assert any(f" {name} " in f"{line} " for line in examples), name
        for line in examples:
            # What a shell would make of it: up to what it redirects, without what it evaluates.
            call = line.removesuffix(')"').split("sow ", 1)[1].split(" > ~")[0].split(" > o")[0]
            parsed(main, shlex.split(call))


def test_every_command_and_option_is_explained_by_sentences():
    found = list(all_commands())
    texts = [(name, command.help) for name, command in found] + [
        (f"{name} {option.opts[0]}", option.help)
        for name, command in found
        for option in command.params
        if isinstance(option, click.Option)
    ]
    assert len(texts) > 200
    assert [name for name, text in texts if not (text or "").rstrip().endswith((".", ")"))] == []


def parsed(command, words):
    """Read the words of a call and carry nothing out; raises click's error."""
    context = command.make_context(command.name, words)
    if isinstance(command, click.Group):
        _, chosen, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        parsed(chosen, rest)


def test_the_package_is_the_command_line():
    done = subprocess.run(
        [sys.executable, "-m", "sow", "qery"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "Try 'python -m sow --help'" in done.stderr) == (2, True)


def test_a_file_that_is_not_there_is_wrong_usage():
    assert run("publish", "orders", "nowhere.json").exit_code == 2


def test_checking_loads_neither_network_nor_store():
    code = (
        "import sys; from sow.cli import main; main(['check'], standalone_mode=False); "
        "print([m for m in ('aiohttp', 'lmdb', 'pyarrow', 'numpy') if m in sys.modules])"
    )
    assert said_by(code) == "[]"


def said_by(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def test_asking_a_server_loads_neither_numbers_in_columns_nor_store():
    code = (
        "import sys, sow.cli.commands.publish, sow.cli.commands.query, sow.cli.commands.query; "
        "print([m for m in ('lmdb', 'numpy', 'pandas', 'pyarrow') if m in sys.modules])"
    )
    assert said_by(code) == "[]"


def test_the_collector_does_not_look_through_what_is_imported():
    code = (
        "import gc; seen = []; gc.callbacks.append(lambda phase, _: seen.append(phase)); "
        "from sow.cli.main import main; seen.clear(); main.get_command(None, 'serve'); "
        "print(len(seen), gc.isenabled())"
    )
    assert said_by(code) == "0 True"


@all_cases("name", SUBCOMMANDS)
def test_every_command_and_option_is_documented(name):
    command = main.get_command(click.Context(main), name)
    _, _, section = DOCUMENTED.partition(f"\n## sow {name}\n")
    section = section.partition("\n## ")[0]
    assert section, f"docs/cli.md has no section '## sow {name}'"
    if any("--url" in parameter.opts for parameter in command.params):
        section += DOCUMENTED.partition("\n## ")[0]  # the options of all that talk to a server
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert f"`{parameter.opts[0]}" in section, f"sow {name} {parameter.opts[0]}"


def test_nothing_that_does_not_exist_is_documented():
    sections = [line[7:] for line in DOCUMENTED.splitlines() if line.startswith("## sow ")]
    assert sorted(sections) == sorted(SUBCOMMANDS)


def test_ctrl_c_while_the_command_line_is_loaded_ends_it_as_later():
    script = """
import sys


class Interrupting:
    def find_spec(self, name, *_more):
        if name == "click":
            raise KeyboardInterrupt


sys.meta_path.insert(0, Interrupting())
import sow.cli
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
