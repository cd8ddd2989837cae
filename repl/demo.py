"""A demonstration of two minutes: prompts for copies, a trained head and `auto`, then the time per token."""

from typing import NamedTuple

from ablation.plan.choice import choose_runs
from repl.player import SessionPlayer
from repl.replies import Message


class Act(NamedTuple):
    """One part of the demonstration: its introduction, its methods and its prompt."""

    told: str
    methods: str
    prompt: str


LENGTH = "60"
ACTS = (
    Act(
        "1 of 3. Copies need no model: this answer repeats its prompt, so the drafts are copied from the prompt.",
        "target,prompt_lookup",
        "Repeat this sentence three times: The quick brown fox jumps over the lazy dog near the river bank.",
    ),
    Act(
        "2 of 3. A trained head reads the target's hidden states: it can also draft new text.",
        "target,mtp",
        "What is the capital of France, and what is it known for?",
    ),
    Act(
        "3 of 3. auto chooses in each round the drafter with the most expected tokens per second, or no drafter.",
        "target,auto",
        "Write a Python function that adds two numbers, then explain each line.",
    ),
)
WHY = "The time per token of the last answer (/why):"
NEXT = "Now it is your turn: without `demo` the session asks for your prompts, and /help shows the rest."


def play(player: SessionPlayer) -> None:
    """Run all parts on a session, until Ctrl-C."""
    session, view = player.session, player.view
    for act in ACTS:
        view.reply(Message(act.told))
        session.choose({"length": LENGTH}, choose_runs(act.methods, session.settings))
        view.show_prompt(act.prompt)
        player.execute(act.prompt)
        if player.interrupted or session.loading.error is not None:
            return
    view.reply(Message(WHY))
    player.execute("/why")
    view.reply(Message(NEXT))
