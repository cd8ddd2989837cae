"""Two minutes with nothing to type: prompts that show copies, a trained head and `auto`, then where the time went."""

from typing import NamedTuple

from ablation.plan.choice import choose_runs
from repl.player import SessionPlayer
from repl.replies import Message


class Act(NamedTuple):
    """What is told first, what answers, and what is asked."""

    told: str
    methods: str
    prompt: str


LENGTH = "60"
ACTS = (
    Act(
        "1 of 3. Copies need no model: this answer repeats its prompt, so they draft what followed the same words.",
        "target,prompt_lookup",
        "Repeat this sentence three times: The quick brown fox jumps over the lazy dog near the river bank.",
    ),
    Act(
        "2 of 3. A trained head reads the target's hidden states: it guesses text that was not seen before.",
        "target,mtp",
        "What is the capital of France, and what is it known for?",
    ),
    Act(
        "3 of 3. auto takes in each round the drafter with the most expected tokens a second; that may be none.",
        "target,auto",
        "Write a Python function that adds two numbers, then explain each line.",
    ),
)
WHY = "Where the time of a token of that last answer went (/why):"
NEXT = "Now it is your turn: without `demo` the session asks for your prompts, and /help shows the rest."


def play(player: SessionPlayer) -> None:
    """Play the acts on a session, until Ctrl-C."""
    session, view = player.session, player.view
    for act in ACTS:
        view.reply(Message(act.told))
        session.choose({"length": LENGTH}, choose_runs(act.methods, session.settings))
        view.echo(act.prompt)
        player.execute(act.prompt)
        if player.interrupted or session.loading.error is not None:
            return
    view.reply(Message(WHY))
    player.execute("/why")
    view.reply(Message(NEXT))
