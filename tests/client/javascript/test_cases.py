"""sow.js line by line (`cases.mjs`), in Node and in a page; bugs planted in it are found."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from sow.server.api.static_files import CONSOLE_FOLDER
from tests.cases import all_cases
from tests.needs import node

HERE = Path(__file__).parent
CLIENT = (CONSOLE_FOLDER / "sow.js").read_text()
CASES = re.findall(r"^export async function (\w+)", (HERE / "cases.mjs").read_text(), re.M)
SITE = "http://cases.example"


def in_node(*arguments):
    """What became of cases with the clients in some files (`run.mjs`)."""
    command = [*node(), str(HERE / "run.mjs"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def outcomes_in_node():
    (found,) = in_node(CONSOLE_FOLDER / "sow.js")
    return found


@pytest.fixture(scope="module")
def outcomes_in_a_page(one_browser):
    page = one_browser.page()
    page.serve(f"{SITE}/", "<!doctype html><title>cases</title>", "text/html")
    page.serve(f"{SITE}/desk/sow.js", CLIENT, "text/javascript")
    for name in ("cases.mjs", "outcomes.mjs"):
        page.serve(f"{SITE}/{name}", (HERE / name).read_text(), "text/javascript")
    page.open(f"{SITE}/")
    script = """async () => {
        const [client, {outcomes}] = await Promise.all(
            [import("/desk/sow.js"), import("/outcomes.mjs")]);
        const made = [];
        const WebSocket = class { constructor(url) { made.push(url); } close() {} };
        client.connect({WebSocket}).catch(() => {});
        await new Promise((done) => setTimeout(done));
        return {...await outcomes(client), made};
    }"""
    found = page.evaluate(script)
    errors = page.errors
    page.close()
    assert errors == []
    return found


@pytest.mark.node
@all_cases("name", CASES)
def test_in_node(outcomes_in_node, name):
    assert outcomes_in_node[name] is None


@pytest.mark.browser
@all_cases("name", CASES)
def test_in_a_page(outcomes_in_a_page, name):
    assert outcomes_in_a_page[name] is None


@pytest.mark.browser
def test_without_an_address_it_is_where_the_file_came_from_below_a_path_too(outcomes_in_a_page):
    assert outcomes_in_a_page["made"] == ["ws://cases.example/desk/v1/ws"]


PLANTED: dict[str, tuple[str, str, str]] = {
    "a server with another log is used": (
        "a_server_with_another_log_is_passed_over",
        'log !== "" && log !== known',
        "false",
    ),
    "a write stays at the follower": (
        "what_a_follower_refuses_goes_to_the_primary_in_order",
        'if (error.reason !== "not primary" || !error.primary) throw error;',
        "throw error;",
    ),
    "a subscription starts again elsewhere": (
        "a_subscription_goes_on_elsewhere_behind_its_bookmark",
        "(areSeveral || bookmark !== undefined)",
        "bookmark !== undefined",
    ),
    "a server that has not come so far ends a subscription": (
        "a_server_that_has_not_come_so_far_is_left",
        "if (AWAY.includes(error.reason))",
        "if (false)",
    ),
    "a subscription begins at a server that has not come so far": (
        "a_subscription_begins_where_a_server_has_come_so_far",
        "|| !AWAY.includes(error.reason)) throw error",
        "|| true) throw error",
    ),
    "the only server that has not come so far ends a subscription": (
        "the_only_server_that_has_not_come_so_far_is_asked_again",
        "this.#connection.later(() => this.startAgain(reason))",
        "this.end(error)",
    ),
    "a number is a line": (
        "a_line_that_is_none_ends_it_with_a_sentence",
        'if (!lines.every(isObject)) throw new TypeError("a line is an object");',
        "",
    ),
    "a text that ends like an integer is one": (
        "integers_keep_their_digits_if_requested",
        "const endsWithNul = !isInText && ",
        "const endsWithNul = false && ",
    ),
    "a name is marked as a text is": (
        "integers_keep_their_digits_if_requested",
        ' && !isBefore(":", text, at + 1)',
        "",
    ),
    "lines are not counted": ("frames_may_follow_the_ack_without_a_pause", "this.#seen += 1;", ""),
    "the ack of a logon is counted": (
        "frames_may_follow_the_ack_without_a_pause",
        "this.#seen = 0;",
        "this.#seen = 1;",
    ),
    "a publish is sent again": (
        "what_was_on_its_way_is_found_by_a_flush",
        "again = false, ofSession",
        "again = true, ofSession",
    ),
    "an old unsubscribe is said to a new session": (
        "a_session_that_is_gone_takes_its_names_along",
        "request.sent || request.ofSession",
        "request.sent",
    ),
    "what was sent twice is followed twice": (
        "what_was_sent_twice_is_followed_once",
        "this.#overtaken.add(request.cid);",
        "",
    ),
    "an answer begun twice is mixed": (
        "what_was_on_its_way_is_found_by_a_flush",
        "[records, keys] = [[], []];",
        "",
    ),
    "waits do not grow": ("waits_grow_and_are_partly_chance", "wait_s * 2", "wait_s"),
    "chance plays no part": ("waits_grow_and_are_partly_chance", "0.5 * this.#random()", "0"),
    "a refused logon is tried again": (
        "a_logon_that_is_refused_on_the_way_back_ends_it_or_waits",
        "? error : asFinal(error)",
        "? error : error",
    ),
    "a server that closes is gone back to": (
        "who_is_closed_by_the_server_stays_closed",
        "return closedByServer(this.#farewell",
        "void (0",
    ),
    "a silent server is waited for": ("a_server_that_is_silent_is_left", "probed = true;", ""),
    "a delta is assigned": (
        "names_of_prototypes_are_names",
        "Object.defineProperty(result, name, { value: now, writable: true, "
        "enumerable: true, configurable: true });",
        "result[name] = now;",
    ),
    "half a turn is seen": (
        "half_a_snapshot_or_turn_is_never_seen",
        "!this.#holds && !this.#isWindow",
        "!this.#holds",
    ),
    "half a replacement is seen": (
        "a_replaced_view_changes_at_once",
        "replaced: () => {\n        this.#holds = true;",
        "replaced: () => {",
    ),
    "a gap leaves what has gone": (
        "a_gap_is_made_up_for_at_once",
        "if (isWhole) this.#leaveBut",
        "if (false) this.#leaveBut",
    ),
    "what stayed over a gap is reported": (
        "a_gap_is_made_up_for_at_once",
        "isWhole && same(",
        "false && same(",
    ),
    "a record has two places": (
        "half_a_snapshot_or_turn_is_never_seen",
        "if (before >= 0) this.#order.splice(before, 1);",
        "",
    ),
    "changes are from the last one": (
        "readers_have_their_own_pace",
        "known === undefined ? change.old : known.old",
        "change.old",
    ),
    "what nobody reads grows": (
        "messages_that_nobody_reads_are_bounded",
        "this.#unread.length > UNREAD_MAX",
        "false",
    ),
    "NaN becomes null": ("documents_are_written_by_value", "!Number.isFinite(value)", "false"),
    "an index is that in its frame": (
        "publishes_go_in_frames",
        "error.index += start",
        "error.index += 0",
    ),
    "a range loses its end": (
        "a_bookmark_goes_on_from_where_it_is",
        "`(${seen}:${range.end}${range.closing}`",
        "seen",
    ),
    "the past is sent again": (
        "the_past_is_sent_once",
        "this.#leavePast();",
        "",
    ),
    "a replaced view is of the past": (
        "a_view_of_the_past_begins_again_with_the_present",
        "const { as_of: _begun, ...before } = this.#options;",
        "const before = this.#options;",
    ),
    "a refusal is an answer": (
        "what_speaks_against_events_is_an_error",
        "if (!answer.ok) throw failure(found);",
        "",
    ),
    "a listener's error is ours": (
        "an_error_in_somebody_elses_code_is_theirs",
        "function guarded(work) {",
        "function guarded(work) { work();",
    ),
    "a paused client gets messages": (
        "a_pause_lets_go_and_goes_on",
        "if (socket !== this.#socket) return;\n    this.#received",
        "this.#received",
    ),
    "a refused replacement is kept": (
        "a_refused_replacement_changes_nothing",
        "if (error !== null) return;\n        this.#options = options;",
        "this.#options = options;",
    ),
    "a password is shown": (
        "addresses",
        '"the address has a user in it;',
        'found.href + " has a user in it;',
    ),
    "frames are as long as they like": (
        "publishes_go_in_frames",
        "end - start < FRAME_MESSAGES",
        "true",
    ),
    "a token is requested once": (
        "a_token_is_requested_for_each_connection",
        'typeof token === "function" ? await token() : token',
        'typeof token === "function" ? await (token.once ??= token()) : token',
    ),
}


@pytest.fixture(scope="module")
def outcomes_with_bugs(tmp_path_factory):
    """By the titles of bugs what became of their cases with the bug and then without it, which is
    not to suffer from what was before; all in one Node."""
    folder, arguments = tmp_path_factory.mktemp("planted"), []
    for at, (case, right, wrong) in enumerate(PLANTED.values()):
        file = folder / f"sow{at}.mjs"
        file.write_text(CLIENT.replace(right, wrong, 1))
        arguments += ["--", file, case, "--", CONSOLE_FOLDER / "sow.js", case]
    found = [outcome for one in in_node(*arguments[1:]) for outcome in one.values()]
    return dict(zip(PLANTED, zip(found[::2], found[1::2], strict=True), strict=True))


@pytest.mark.node
@all_cases("title", PLANTED)
def test_a_planted_bug_is_found(outcomes_with_bugs, title):
    assert PLANTED[title][1] in CLIENT, "the place has changed"
    with_it, without_it = outcomes_with_bugs[title]
    assert with_it is not None
    assert without_it is None
