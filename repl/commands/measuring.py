"""Commands that measure: plans and batches on the loaded pair, what rounds cost, where the time of an answer went."""

from pathlib import Path

from repl.commands.command import CommandHost
from repl.commands.handlers import no_argument
from repl.costs import profile_sheet
from repl.measuring import plan
from repl.replies import Message, SectionSheet
from utils.errors import UserError
from utils.interrupt import Deferred

_AT_A_TIME = 4


def profile(host: CommandHost, argument: str) -> SectionSheet:
    """/profile."""
    no_argument("profile", argument)
    host.wait()
    return profile_sheet(host.profile())


def ablate(host: CommandHost, argument: str) -> None:
    """/ablate [PLAN]; a wrong plan is refused before the models are waited for."""
    session, view = host.session, host.view
    experiment = plan.read(session, argument)
    begun = session.start is not None
    host.wait()
    session.settle()
    with Deferred():
        from repl.measuring.ablate import run_plan

    if not begun:  # what is on has been decided since
        experiment = plan.read(session, argument)
    if plan.takes_runs(session, argument):
        names = ", ".join(configuration.name for configuration in experiment.plan.configurations)
        named = f"/ablate {plan.DEFAULT_PLAN}"
        view.reply(Message(f"the prompts of {plan.DEFAULT_PLAN} for {names}; {named} runs that plan as it is"))
    try:
        outcome = run_plan(session, experiment, f"/ablate {argument}".rstrip(), view)
    except KeyboardInterrupt:
        view.reply(Message("stopped at once; /results reports the rows so far"))
        raise
    host.count(outcome)


def batch(host: CommandHost, argument: str) -> None:
    """/batch FILE [N]; a file that cannot be read is told before the models are waited for."""
    from ablation.plan.contents import BATCH
    from ablation.plan.prompts.sets import find_sources, gather

    name, _, last = argument.rpartition(" ")
    name, size = (name.strip(), BATCH.parse(last)) if name and last.isdecimal() else (argument, _AT_A_TIME)
    if not name:
        raise UserError("/batch: no prompts given; expected /batch FILE or a built-in set, and the batch size")
    prompts = gather(find_sources([name], Path()))
    host.session.refuse_nothing()
    host.wait()
    host.session.settle()  # what is on is the pair's to decide
    with Deferred():
        from repl.measuring.batch import answer

    host.count(answer(host.session, prompts, size, host.view))


def results(host: CommandHost, argument: str) -> None:
    """/results."""
    no_argument("results", argument)
    with Deferred():
        from repl.measuring.ablate import show_last

    show_last(host.view)


def why(host: CommandHost, argument: str) -> None:
    """/why [METHOD]: where the time of the last answer went. Raises `UserError` before the first one."""
    if host.session.answers is None:
        raise UserError("/why: nothing was answered yet; type a prompt first")
    from repl.screen.why import page

    host.view.out.print(page(host.session.answers, argument, host.view.out))
