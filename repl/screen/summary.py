"""What is on, why, and with which settings: in one line each."""

from collections.abc import Iterator, Sequence

from repl.files.runs import Run
from repl.own_settings import TURNS
from repl.session import Session
from repl.start import AUTO
from sampling.loading.options import WEIGHTS
from sampling.methods.settings import GENERAL, PARAMETERS
from sampling.methods.tables import METHODS
from utils.parameter import Values
from utils.text import shown

_ALWAYS = ("length", "processor")


def summary(session: Session) -> str:
    """The settings in use that differ from their start, and what the models and the cards add."""
    settings = [f"{name} {value}" for name, value in shown_settings(session)]
    pair = session.loading.pair
    if pair is not None and pair.target_info.stored != WEIGHTS[0]:
        settings.append(f"target_weights {pair.target_info.stored}")
    if pair is not None and pair.target_info.batch_invariant:
        settings.append("batch-invariant")
    return ", ".join([*settings, *recommended(session.runs())])


def shown_settings(session: Session) -> Iterator[tuple[str, str]]:
    """Length and processor, and what else is read here and is not as it was at start: names and values."""
    values, runs = session.settings, session.runs()
    read = {name for run in runs for name in _read(run, values)} | {p.name for p in GENERAL} - _unread(values, runs)
    for parameter in PARAMETERS.values():
        name, value = parameter.name, session.show(parameter.name)
        if name in read and name not in METHODS and (name in _ALWAYS or value != session.at_start(name)):
            yield name, value
    if session.own[TURNS.name] != TURNS.default:
        yield TURNS.name, session.show(TURNS.name)


def _read(run: Run, values: Values) -> set[str]:
    """The session's settings that a run reads."""
    parameters = run.parameters
    return {p.name for p in METHODS[run.method].relevant({**values, **parameters})} - parameters.keys()


def _unread(values: Values, runs: Sequence[Run]) -> set[str]:
    """General settings without a say here: greedy draws nothing, and a search asks no processor."""
    if runs and all(METHODS[run.method].search for run in runs):
        return {"processor", "seed"}
    return {"seed"} if values["processor"].name == "greedy" else set()


def recommended(runs: Sequence[Run]) -> list[str]:
    """Where a card's value stands in for the session's."""
    return [
        f"{run.title} {name} {PARAMETERS[name].show(value)} (card)"
        for run in runs
        for name, value in run.recommended.items()
    ]


def titles(session: Session) -> str:
    """What answers a prompt: `AR, SD and NASD`."""
    *others, last = [run.title for run in session.runs()] or ["no method"]
    return f"{', '.join(others)} and {last}" if others else last


def on_and_why(session: Session) -> str:
    """What answers a prompt, and what of it the pair and the cards have decided."""
    return "; ".join([f"on: {titles(session)}", *_reasons(session)])


def greeting(session: Session) -> str:
    """What to do at the first prompt, what is on and why, a line each; while the models load, that they do."""
    if (error := session.loading.error) is not None:
        return f"No model is loaded: {shown(error)}\n/model ID loads another one, /help shows the commands."
    if session.start is None:
        return "Type a question, or /help for commands. The models are loading."
    answer = "answer" if len(session.runs()) > 1 else "answers"
    why = "; ".join(_reasons(session))
    first = f"Type a question: {titles(session)} {answer} it. /help shows more."
    return f"{first}\n{why[0].upper()}{why[1:]}." if why else first


def refused(session: Session) -> str | None:
    """Why the models asked for last could not be had, where those before them are loaded again."""
    why = session.loading.refused
    return None if why is None else f"{shown(why)}; the models before it are loaded again"


def _reasons(session: Session) -> Iterator[str]:
    if session.start is None:
        return
    decided = [run.title for run in session.runs() if run.method in session.start.settings and run.method != AUTO]
    if decided and session.start.why:
        yield f"{decided[-1]} is {session.start.why}"
    if cards := recommended(session.runs()):
        yield f"recommended by cards: {', '.join(text.removesuffix(' (card)') for text in cards)}"
