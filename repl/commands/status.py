"""The page of /status."""

from collections.abc import Iterator, Mapping

from repl.commands.command import SessionCommand
from repl.files.user_files import state_folder
from repl.replies import SectionSheet, SheetSection
from repl.session import Session
from sampling.methods.settings import PARAMETERS


def status_page(session: Session, commands: Mapping[str, SessionCommand]) -> SectionSheet:
    """Models, what answers a prompt, every setting with its default where it differs, memory, files."""
    sections = [
        SheetSection("Models", tuple(_models(session))),
        SheetSection("What answers a prompt", tuple(_runs(session))),
    ]
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for command in commands.values():
        if command.setting:
            name = command.setting.name
            default = command.setting.show(command.setting.default)
            changed = "" if session.show(name) == default else f"default {default}"
            groups.setdefault(command.heading or command.group.capitalize(), []).append(
                (name, session.show(name), changed)
            )
    sections += [SheetSection(group, tuple(lines)) for group, lines in groups.items()]
    if tried := tuple(_tried(session)):
        sections.append(SheetSection("Chosen by measuring on this machine", tried))
    if memories := session.memories():
        sections.append(SheetSection("Memory", tuple((name, text, "") for name, text in memories)))
    sections.append(SheetSection("Files", (("state", str(state_folder()), "history, errors.log"),)))
    return SectionSheet("Session", tuple(sections))


def _runs(session: Session) -> Iterator[tuple[str, str, str]]:
    for run in session.runs():
        values = [f"{name} {PARAMETERS[name].show(value)}" for name, value in run.recommended.items()]
        yield run.title, run.name, f"recommended by its card: {', '.join(values)}" if values else ""


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
        value = "none" if info is None else f"{info.name}, {info.device}, {info.dtype}{kernel}{rounded}{made}{alike}"
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
