"""The pages of /status."""

from collections.abc import Iterator, Mapping

from repl.commands.command import SessionCommand
from repl.files.user_files import state_folder
from repl.replies import SectionSheet, SheetSection
from repl.screen.summary import shown_settings
from repl.session import Session
from sampling.methods.settings import PARAMETERS


def short_page(session: Session) -> SectionSheet:
    """Models, what answers a prompt, the settings that were changed: one screen."""
    settings = tuple((name, value, _default(session, name)) for name, value in shown_settings(session))
    return SectionSheet(
        "Session",
        (
            *_in_use(session),
            SheetSection("Changed settings in use, and the length", settings),
            *_kept(session),
        ),
        ("/status all shows every setting.",),
    )


def whole_page(session: Session, commands: Mapping[str, SessionCommand]) -> SectionSheet:
    """The same with every setting, and what was chosen by measuring."""
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for command in commands.values():
        if command.setting:
            name = command.setting.name
            groups.setdefault(command.heading or command.group.capitalize(), []).append(
                (name, session.show(name), _default(session, name))
            )
    sections = [*_in_use(session), *(SheetSection(group, tuple(lines)) for group, lines in groups.items())]
    if tried := tuple(_tried(session)):
        sections.append(SheetSection("Chosen by measurement on this machine", tried))
    return SectionSheet("Session", (*sections, *_kept(session)))


def _in_use(session: Session) -> Iterator[SheetSection]:
    yield SheetSection("Models", tuple(_models(session)))
    yield SheetSection("Methods that are on", tuple(_runs(session)))


def _kept(session: Session) -> Iterator[SheetSection]:
    if memories := session.memories():
        yield SheetSection("Memory", tuple((name, text, "") for name, text in memories))
    yield SheetSection("Files", (("state", str(state_folder()), "history, errors.log"),))


def _default(session: Session, name: str) -> str:
    """What to say of a setting that is not as it was at start."""
    start = session.at_start(name)
    return "" if session.show(name) == start else f"default {start}"


def _runs(session: Session) -> Iterator[tuple[str, str, str]]:
    for run in session.runs():
        values = [f"{name} {PARAMETERS[name].show(value)}" for name, value in run.recommended.items()]
        yield run.label, "", f"recommended by its card: {', '.join(values)}" if values else ""


def _models(session: Session) -> Iterator[tuple[str, str, str]]:
    pair, loading = session.loading.pair, session.loading
    if pair is None:
        yield "models", "failed" if loading.done else "loading", str(loading.error or loading.describe())
        return
    for role, info in (("target", pair.target_info), ("drafter", pair.drafter_info)):
        kernel = "" if info is None or info.kernel is None else f", {info.kernel} kernel"
        rounded = "" if info is None or info.stored == "full" else f", weights in {info.stored}"
        made = "" if info is None else f"{', compiled' * info.compiled}{', fixed shapes' * info.graphs}"
        alike = "" if info is None else ", batch-invariant" * info.batch_invariant
        back = "" if info is None or info.rollback is None else f", takes tokens back by {info.rollback}"
        ours = "" if info is None or info.own_kernels is None else f", own kernels: {info.own_kernels}"
        how = f"{kernel}{rounded}{made}{ours}{alike}{back}"
        value = "none" if info is None else f"{info.name}, {info.device}, {info.dtype}{how}"
        yield role, value, info.detail if info else ""
    for note in pair.notes:
        yield "note", note, ""


def _tried(session: Session) -> Iterator[tuple[str, str, str]]:
    pair = session.loading.pair
    if pair is not None:
        from sampling.forward.kernels.autotune_cache import made  # torch is there by now

        if pair.profile is not None:
            yield "what rounds cost", "measured", f"{pair.profile.measured}; /profile shows it"

        for question, choice in made().items():
            yield question, "yes" if choice.answer else "no", choice.origin
