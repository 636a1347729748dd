"""What is shipped to run a server with agrees with it: alerts, dashboard, unit, image, page.

Each expression may name only figures that `/metrics` has, by the labels that they have, and rates
of nothing but counters.
"""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from sow.cli.main import main
from sow.store.manifest import FORMAT
from tests.docs.metrics import exposed

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PAGE = (ROOT / "docs/operations.md").read_text()
ADDED = {"job", "instance", "le"}
"""Labels that Prometheus gives, and that of a bucket."""
FIGURES_OF_OTHERS = {"up"}
"""Prometheus's own."""
SERIES = re.compile(r"\b(up|(?:sow|process|python)_\w+)(?:\{([^}]*)\})?(\[)?")


@pytest.fixture(scope="module")
def figures():
    """Each series of the exposition: its type, and its labels."""
    text = exposed()
    kinds, found = {}, {}
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M):
        ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        kinds |= {name + end: "counter" if len(ends) > 1 else kind for end in ends}
    for name, labels in re.findall(r"^([a-z]\w*)(?:\{([^}]*)\})? ", text, re.M):
        if name in kinds:
            found.setdefault(name, (kinds[name], set()))[1].update(
                re.findall(r'(\w+)="', labels or "")
            )
    return found


def wrong(expression, figures):
    """What is wrong with an expression of PromQL."""
    faults, labels = [], set()
    for name, matchers, over in SERIES.findall(expression):
        if name in FIGURES_OF_OTHERS:
            continue
        if name not in figures:
            faults.append(f"no figure {name}")
            continue
        kind, has = figures[name]
        labels |= has
        faults += [
            f"{name} has no label {label}"
            for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)
            if label not in has | ADDED
        ]
        rated = re.search(rf"(?:rate|increase)\(\s*{name}\b", expression)
        if bool(rated) != (kind == "counter") and not (over and "changes(" in expression):
            faults.append(f"{name} is a {kind}")
    for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
        named = {label.strip() for label in grouped.split(",")}
        faults += [f"no label {label}" for label in named - labels - ADDED]
    return faults


def alerts():
    """The alerts by name, with their expressions; the file holds nothing that needs a parser."""
    text = (DEPLOY / "alerts.yml").read_text()
    return dict(re.findall(r"- alert: (\w+)\n\s+expr: (.*)\n", text))


def panels():
    for panel in json.loads((DEPLOY / "grafana.json").read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield f"{panel['title']} {target['refId']}", target["expr"], target["legendFormat"]


@pytest.mark.parametrize("name", alerts())
def test_an_alert_asks_for_figures_that_there_are(name, figures):
    assert wrong(alerts()[name], figures) == []


def test_a_panel_asks_for_figures_that_there_are(figures):
    assert {
        name: faults for name, requested, _ in panels() if (faults := wrong(requested, figures))
    } == {}


def test_the_legend_of_a_panel_shows_labels_that_its_figures_have(figures):
    for name, requested, legend in panels():
        has = set().union(*(figures[series][1] for series, _, _ in SERIES.findall(requested)))
        assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= has, name


@pytest.mark.parametrize(
    "planted",
    [
        "sow_session",
        "sow_sessions_closed",
        'rate(sow_sessions_closed_total{why="slow"}[5m])',
        "sow_sessions_closed_total > 5",
        "rate(sow_sessions[5m])",
        "sum by (why) (rate(sow_sessions_closed_total[5m]))",
        "histogram_quantile(0.99, rate(sow_fsync_seconds[5m]))",
    ],
)
def test_an_expression_that_would_find_nothing_is_sent(planted, figures):
    assert wrong(planted, figures)


def test_each_alert_says_what_to_do_and_no_other_one_does():
    headings = re.findall(r"^- \*\*(Sow\w+)\*\*: ", PAGE, re.M)
    assert headings == list(alerts())
    for name in headings:
        said = re.split(r"\n- \*\*|\n\n", PAGE.partition(f"- **{name}**: ")[2])[0]
        assert len(said.split()) > 20, name


def test_each_panel_stands_in_a_place_of_its_own():
    shown = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    taken = set()
    for panel in shown:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in shown}) == len(shown)


def commands_of(text):
    """What is run of ours, word by word."""
    for line in re.findall(r"^ExecStart=\S+/(sow .*)$", text, re.M):
        yield line.split()[1:]
    for line in re.findall(r"^\s*CMD (\[.*\])$", text, re.M):
        words = json.loads(line)
        yield words[1:] if words[0] == "sow" else words


@pytest.mark.parametrize("file", ["sow.service", "Dockerfile"])
def test_what_is_run_is_a_command_with_options_that_there_are(file):
    found = list(commands_of((DEPLOY / file).read_text()))
    assert found
    for words in found:
        shown = CliRunner().invoke(main, [words[0], "--help"])
        assert shown.exit_code == 0
        for option in words:
            assert not option.startswith("--") or option in shown.output
        assert "--insecure" not in words


def test_the_image_is_nobodys_root_and_has_one_volume():
    text = (DEPLOY / "Dockerfile").read_text()
    assert re.findall(r"^USER (\d+):\d+$", text, re.M) not in ([], ["0"])
    assert re.findall(r"^VOLUME (.*)$", text, re.M) == ['["/data"]']
    last = text.rpartition("FROM ")[2]
    assert last.index("USER ") < last.index("CMD ")
    for source in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.M):
        assert all((ROOT / name).exists() for name in source.split())


def test_the_unit_is_sent_when_it_is_ready_and_watched():
    unit = (DEPLOY / "sow.service").read_text()
    assert "\nType=notify\n" in unit
    assert re.search(r"^WatchdogSec=\d+$", unit, re.M)


def test_the_unit_has_a_user_and_a_directory_of_its_own_and_reloads_by_sighup():
    unit = (DEPLOY / "sow.service").read_text()
    directory = re.search(r"^ExecStart=.* --data-dir /var/lib/(\S+)$", unit, re.M)[1]
    for line in (
        "DynamicUser=yes",
        "User=sow",
        "ProtectSystem=strict",
        f"StateDirectory={directory}",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "Restart=on-failure",
    ):
        assert f"\n{line}\n" in unit
    assert "ReadWritePaths=" not in unit


def test_the_page_names_the_format_of_the_data():
    assert f"format {FORMAT}" in PAGE
