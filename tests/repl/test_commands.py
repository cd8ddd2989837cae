"""Commands without a terminal: what is declared is what is parsed, completed, explained and validated."""

import io
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from ablation.results.tables.comparison import LEDGER, ONE_RUN, Column
from repl.commands.command import GROUPS
from repl.commands.completion import complete
from repl.commands.table import COMMANDS, find, parse
from repl.own_settings import STATE
from repl.replies import Message, SectionSheet
from repl.screen import render
from repl.screen.summary import summary
from repl.session import Session
from sampling.forward.kernels import autotune_cache
from sampling.forward.kernels.autotune_cache import TunedChoice
from tests.refusals import refused
from tests.repl.executing import IdlePlayer, ModelsAwaitedError, execute
from utils.errors import UserError

SPEC = {
    "help", "quit", "clear", "status", "target", "drafter", "speculative", "ngram", "egag", "length", "gamma",
    "egag_gamma_min", "egag_gamma_max", "egag_ema", "processor", "set_ngramstorage", "top_k_filler",
    "reset_in_between", "cache", "chat", "debug", "seed",
}  # fmt: skip
FILES = {"save", "load", "export"}
WAITING: dict[str, type[Exception]] = {
    **dict.fromkeys(("ablate", "batch", "profile", "ngram_save", "ngram_load"), ModelsAwaitedError),
    **dict.fromkeys(("why", "results", "repeat"), UserError),  # nothing was answered or measured yet
}


def test_every_documented_command_is_there() -> None:
    assert set(COMMANDS) >= SPEC


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_an_example_that_runs(name: str, idle_session: Session) -> None:
    command = COMMANDS[name]
    assert command.help and command.group
    if name not in FILES:
        with pytest.raises(WAITING[name]) if name in WAITING else nullcontext():
            reply = execute(idle_session, f"/{name} {command.example}")
            assert reply is not None or name in ("quit", "clear")
    page = execute(idle_session, f"/help {name}")
    assert isinstance(page, SectionSheet)
    assert {"usage", "example"} <= {row[0] for row in page.sections[0].rows}


@pytest.mark.parametrize("name", [n for n, p in STATE.items() if isinstance(p.default, bool)])
def test_a_toggle_flips_alone_and_is_idempotent_with_a_word(name: str, idle_session: Session) -> None:
    before = idle_session.show(name)
    execute(idle_session, f"/{name}")
    assert idle_session.show(name) != before
    for word in ("on", "on", "off", "off"):
        execute(idle_session, f"/{name} {word}")
        assert idle_session.show(name) == word


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/gamma -1", ["'-1'", "0 to 1024"]),
        ("/gamma four", ["'four'", "integer"]),
        ("/egag perhaps", ["'perhaps'", "on or off"]),
        ("/egag_ema 1", ["'1'", "< 1"]),
        ("/egag_gamma_min 7", ["7", "6"]),
        ("/processor nuclues 0.8 0.9", ["nuclues", "Did you mean 'nucleus'"]),
        ("/processor topk 1", ["needs top_k"]),
        ("/set_ngramstorage basic 1", ["'1'", "2 to 16"]),
        ("/gama 4", ["/gama", "/gamma"]),
        ("/exti", ["/exit"]),
        ("/help gama", ["gama", "/gamma"]),
        ("/quit now", ["'now'", "no argument"]),
        ("/save", ["no file"]),
        ("/load /nowhere/at/all", ["/nowhere/at/all"]),
        ("/", ["unknown command"]),
    ],
)
def test_a_bad_line_changes_nothing_and_says_why(line: str, words: list[str], idle_session: Session) -> None:
    before = {name: idle_session.show(name) for name in STATE}
    with pytest.raises(UserError) as caught:
        execute(idle_session, line)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert {name: idle_session.show(name) for name in STATE} == before


def test_a_setting_without_a_value_is_shown(idle_session: Session) -> None:
    reply = execute(idle_session, "/gamma")
    assert isinstance(reply, Message)
    assert "gamma is 4" in reply.text and "0 <= INT <= 1024" in reply.text


def test_a_setting_that_no_enabled_method_reads_is_remarked_on(idle_session: Session) -> None:
    reply = execute(idle_session, "/egag_gamma_max 8")
    assert isinstance(reply, Message) and "/egag on" in reply.text
    execute(idle_session, "/egag on")
    reply = execute(idle_session, "/egag_gamma_max 7")
    assert isinstance(reply, Message) and "8 -> 7" in reply.text and "/egag on" not in reply.text


def test_a_setting_of_a_rule_is_in_use_where_the_rule_is(idle_session: Session) -> None:
    assert COMMANDS["draft_rule"].group == "draft_length"
    reply = execute(idle_session, "/confidence_threshold 0.5")
    assert isinstance(reply, Message) and "/draft_rule confidence" in reply.text
    execute(idle_session, "/draft_rule confidence")
    reply = execute(idle_session, "/confidence_threshold 0.6")
    assert isinstance(reply, Message) and "not in use" not in reply.text


@pytest.mark.parametrize(
    ("typed", "prompt"),
    [
        (r"one\ntwo\tthree", "one\ntwo\tthree"),
        (" /etc/hosts is what?", "/etc/hosts is what?"),
        ("# no comment", "# no comment"),
    ],
)
def test_prompts(typed: str, prompt: str, idle_session: Session) -> None:
    assert parse(typed) == prompt


def test_help_without_a_slash_is_help_and_no_prompt(idle_session: Session) -> None:
    assert execute(idle_session, "Help ") == execute(idle_session, "/help")
    for word in ("exit", "QUIT"):
        told = execute(idle_session, word)
        assert isinstance(told, Message) and "/quit" in told.text and "Ctrl-D" in told.text
    for prompt in (" help", " exit", "help me", "exit?"):
        assert parse(prompt) == prompt.strip()
        with pytest.raises(ModelsAwaitedError):
            execute(idle_session, prompt)


def test_nothing_typed_is_nothing(idle_session: Session) -> None:
    assert execute(idle_session, "   ") is None


def test_names_are_found_in_any_case_and_by_alias(idle_session: Session) -> None:
    assert find("/GAMMA") is COMMANDS["gamma"]
    player = IdlePlayer(idle_session)
    player.execute("/exit")
    assert player.left and not player.failures
    assert parse("/gamma   6  ") == (COMMANDS["gamma"], "6")


def _completed(text: str) -> dict[str, str]:
    return {text[: len(text) - found.length] + found.text: found.help for found in complete(text)}


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("/gamma_", set()),
        ("/egag_e", {"/egag_ema"}),
        ("/gam", {"/gamma", *(f"/gammatune_{end}" for end in ("gamma", "gamma_max", "eta", "delta"))}),
        ("/exi", {"/exit"}),
        ("/egag ", {"/egag on", "/egag off"}),
        ("/egag of", {"/egag off"}),
        ("/processor topk", {"/processor topk", "/processor topknucleus"}),
        ("/help egag_e", {"/help egag_ema"}),
        (
            "/help dra",
            {
                *("/help drafting", "/help draft_length", "/help drafter"),
                *("/help draft_weights", "/help draft_tree", "/help draft_rule"),
                *("/help draft_verify_gamma_max", "/help draft_verify_threshold"),
            },
        ),
        ("/gamma ", set()),
        ("/nothing ", set()),
        ("hello /ga", set()),
    ],
)
def test_completion(typed: str, expected: set[str]) -> None:
    assert set(_completed(typed)) == expected


def test_completion_describes_commands() -> None:
    assert _completed("/gam")["/gamma"] == COMMANDS["gamma"].help
    assert set(_completed("/")) >= {f"/{name}" for name in COMMANDS}


def test_completion_offers_files(tmp_path: Path) -> None:
    (tmp_path / "one.session").touch()
    (tmp_path / "ones").mkdir()
    assert set(_completed(f"/load {tmp_path}/one")) == {f"/load {tmp_path}/one.session", f"/load {tmp_path}/ones/"}


def test_help_and_status_show_current_values(idle_session: Session) -> None:
    execute(idle_session, "/gamma 7")
    for line in ("/help all", "/status all"):
        page = execute(idle_session, line)
        assert isinstance(page, SectionSheet)
        cells = {row[0].split()[0].removeprefix("/"): row[1] for section in page.sections for row in section.rows}
        assert cells["gamma"] == "7"
        assert set(STATE) <= set(cells)


def test_status_shows_the_kernel_and_what_was_chosen_by_trying(
    new_session: Callable[[], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autotune_cache, "_given", {})
    monkeypatch.setattr(autotune_cache, "_made", {("int8 drafts", "float32"): TunedChoice(False, "measured now")})
    session = new_session()
    session.loading.wait()
    page = execute(session, "/status all")
    assert isinstance(page, SectionSheet)
    rows = {section.heading: section.rows for section in page.sections}
    about = rows["Models"][0][1].removesuffix(", batch-invariant")
    assert about.endswith(("float32, packed kernel", "float32, plain kernel"))
    assert ("int8 drafts, float32", "no", "measured now") in rows["Chosen by measurement on this machine"]


def _printed(session: Session, line: str, width: int) -> list[str]:
    page = execute(session, line)
    assert isinstance(page, SectionSheet)
    console = Console(file=io.StringIO(), width=width)
    render.show(console, page)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_help_fits_a_screen(idle_session: Session) -> None:
    """Of 24 lines, the typed one, the prompt with its menu, the toolbar and two of margin are not the page's."""
    page = _printed(idle_session, "/help", 80)
    assert len(page) <= 24 - 10 and all(len(line) <= 80 for line in page)
    assert [line.split()[0] for line in page if line.startswith("  ")] == list(GROUPS), "a group a line"


@pytest.mark.parametrize("group", GROUPS)
def test_help_on_a_group_shows_its_commands_with_their_values(group: str, idle_session: Session) -> None:
    page = execute(idle_session, f"/help {group}")
    assert isinstance(page, SectionSheet) and group not in COMMANDS
    calls = {row[0] for section in page.sections for row in section.rows}
    assert calls == {command.call for command in COMMANDS.values() if command.group == group} != set()


def test_help_on_everything_shows_everything(idle_session: Session) -> None:
    page = execute(idle_session, "/help all")
    assert isinstance(page, SectionSheet)
    assert {row[0] for section in page.sections for row in section.rows} == {one.call for one in COMMANDS.values()}


def test_default_is_what_it_was_at_start(idle_session: Session) -> None:
    for name in STATE:
        before = idle_session.show(name)
        execute(idle_session, f"/{name} {COMMANDS[name].example}")
        execute(idle_session, f"/{name} default")
        assert idle_session.show(name) == before


def test_the_summary_names_length_processor_and_what_was_changed(idle_session: Session) -> None:
    assert summary(idle_session) == "length 100, processor greedy"
    for line in ("/gamma 7", "/egag_gamma_max 9", "/length 24"):
        execute(idle_session, line)
    assert summary(idle_session) == "length 24, processor greedy, gamma 7"
    for line in ("/speculative off", "/ngram off", "/egag on"):
        execute(idle_session, line)
    assert summary(idle_session) == "length 24, processor greedy, egag_gamma_max 9"
    execute(idle_session, "/egag_gamma_max default")
    assert "egag" not in summary(idle_session)


def test_status_shows_one_screen_and_all_the_rest(idle_session: Session) -> None:
    execute(idle_session, "/gamma 7")
    short, whole = (_printed(idle_session, line, 80) for line in ("/status", "/status all"))
    assert len(short) <= 24 and len(whole) > 100
    (changed,) = (line for line in short if "gamma" in line)
    assert changed.split() == ["gamma", "7", "default", "4"]
    with refused("/status", "some"):
        execute(idle_session, "/status some")


@pytest.mark.parametrize("column", [*ONE_RUN, *LEDGER], ids=lambda column: column.heading)
def test_help_explains_every_column(column: Column, idle_session: Session) -> None:
    page = execute(idle_session, "/help table")
    assert isinstance(page, SectionSheet)
    assert column.meaning in {row[2] for section in page.sections for row in section.rows}
    if column.heading not in (*COMMANDS, *GROUPS):
        page = execute(idle_session, f"/help {column.heading}")
        assert isinstance(page, SectionSheet) and page.title == column.heading


@pytest.mark.parametrize("name", ["temperature", "top_p", "max_tokens", "heads"])
def test_a_setting_of_other_tools_is_shown_its_place(name: str, idle_session: Session) -> None:
    with pytest.raises(UserError) as refusal:
        execute(idle_session, f"/{name} 0.7")
    (there, *_) = re.findall(r"/(\w+)", str(refusal.value).removeprefix(f"unknown command '/{name}'"))
    assert there in COMMANDS


@pytest.mark.parametrize("line", ["/eagle on", "/method eagle on", "/add eagle gamma=2", "/suffix_or_model on"])
def test_what_the_pair_lacks_is_told_when_it_is_switched_on(line: str, new_session: Callable[[], Session]) -> None:
    session = new_session()
    pair = session.engine.pair
    session.loading.engine().pair = replace(pair, drafter=None, drafter_info=None)
    reply = execute(session, line)
    assert isinstance(reply, Message)
    what = "no drafter model is loaded" if "suffix" in line else f"no eagle head for {pair.target_info.name}"
    assert f", but it cannot answer: {what}" in reply.text
    off = execute(session, "/eagle off")
    assert isinstance(off, Message) and "cannot" not in off.text


def test_the_summary_names_the_format_of_a_rounded_target(new_session: Callable[[], Session]) -> None:
    session = new_session()
    session.loading.wait()
    pair = session.loading.pair
    assert pair is not None and "target_weights" not in summary(session)
    session.loading.engine().pair = replace(pair, target_info=replace(pair.target_info, stored="int4"))
    assert "target_weights int4" in summary(session)


@pytest.mark.parametrize(
    ("typed", "there", "gone"),
    [
        (("/processor multinomial 1", "/seed 7"), ("seed 7",), ()),
        (("/seed 7",), (), ("seed",)),
        (("/mtp on", "/tree_width 7"), (), ("tree_width",)),
        (("/mtp on", "/draft_tree dynamic", "/tree_width 7"), ("draft_tree dynamic", "tree_width 7"), ("tree_tokens",)),
        (
            ("/target off", "/speculative off", "/ngram off", "/beam on", "/num_beams 7", "/seed 7"),
            ("num_beams 7",),
            ("processor", "seed"),
        ),
    ],
)
def test_the_summary_leaves_out_what_nothing_reads(
    typed: tuple[str, ...], there: tuple[str, ...], gone: tuple[str, ...], idle_session: Session
) -> None:
    for line in typed:
        execute(idle_session, line)
    line = summary(idle_session)
    assert [words for words in there if words not in line] == [], line
    assert [words for words in gone if words in line] == [], line
