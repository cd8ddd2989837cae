"""/batch: a file of prompts, several of them answered at a time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from ablation.commands.show import show_batches
from ablation.plan.choice import plain_plan
from ablation.plan.grid import RowKey
from ablation.plan.methods_table import check_values
from ablation.plan.prompts.file import Prompt
from ablation.results.record import Record
from ablation.results.traces.trace import Tracer
from ablation.run.execute import PlayedRow
from ablation.run.job import JobOutcome, PlanJob
from repl.measuring.slots import BatchSlots
from repl.replies import Message
from repl.screen.view import View
from repl.session import Session
from utils.interrupt import silent_keyboard


@dataclass
class _Kept:
    """Records in memory: see `Sink`."""

    done: Mapping[RowKey, PlayedRow] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)

    @contextmanager
    def writing(self, outcome: JobOutcome) -> Iterator[Tracer]:
        """Nothing is traced."""
        yield Tracer(None)

    def add(self, record: Record) -> None:
        """Keep it for the table."""
        self.records.append(record)


def answer(session: Session, prompts: tuple[Prompt, ...], size: int, view: View) -> JobOutcome:
    """Every run of the session on all prompts, `size` at a time, then the table of what each brought.

    Prompts stand alone, whatever /turns says; what is remembered of the session's own prompts is not used.
    """
    runs = session.refuse_nothing()
    for run in runs:
        check_values(run.explicit, session.settings)
    titles = {run.explicit.name: run.title for run in runs}
    plan = plain_plan(prompts, tuple(run.explicit for run in runs), session.settings, 1, batches=(size,))
    engine, kept = session.engine.fresh(), _Kept()
    texts = sum(len(prompt.turns) for prompt in prompts)
    try:
        with silent_keyboard(), BatchSlots(view.err, engine.text, titles, texts) as slots:
            outcome = PlanJob(engine, plan, kept).play(slots)
    except KeyboardInterrupt:
        _show(view, kept.records, stopped=True)
        raise
    _show(view, kept.records, outcome.stopped)
    return outcome


def _show(view: View, records: list[Record], stopped: bool) -> None:
    """The table of the methods that are whole, and whether there would have been more."""
    if stopped:
        view.reply(Message("stopped" if records else "stopped before a method was whole"))
    if records:
        show_batches(view.out, records)
