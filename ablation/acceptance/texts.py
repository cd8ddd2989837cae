"""Texts to walk along: files, answers of the target to prompts, or the answers in a trace."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sampling.engine import Text
from sampling.measure.acceptance.reading import FEWEST, GivenText
from sampling.methods.tables import AR
from utils.errors import UserError
from utils.events import FailedText, Round
from utils.files import checked_path
from utils.json_text import read_json

if TYPE_CHECKING:
    from ablation.plan.prompts.file import Prompt
    from sampling.methods.chat_template import TemplateVariables
    from sampling.pair.local_engine import LocalEngine

BATCH = 8
"""Answers that are written at a time."""

Tell = Callable[..., None]


def from_files(paths: Sequence[Path], engine: "LocalEngine", most: int | None = None) -> list[GivenText]:
    """The texts of files, without a chat template. most: tokens of a text that are kept.

    A line of a .jsonl file is {"text": ...} or {"prompt": ..., "answer": ...}; any other file is one text. Without a
    prompt the places begin at the third token. Raises `UserError` for what cannot be read.
    """
    texts = []
    for path in paths:
        for name, prompt, answer in _said(path):
            before = engine.tokenise([prompt], False) if prompt else []
            ids = engine.tokenise([answer], False)
            if not before:
                before, ids = ids[:FEWEST], ids[FEWEST:]
            window = engine.describe().window
            kept = min(window if most is None else most, window) - len(before)
            texts.append(GivenText(name, tuple(before), tuple(ids[: max(0, kept)])))
    return texts


def _said(path: Path) -> Iterator[tuple[str, str, str]]:
    """(name, prompt, answer) of each text of a file."""
    try:
        content = checked_path(str(path), "text").read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"text {str(path)!r} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if path.suffix != ".jsonl":
        yield path.name, "", content
        return
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        entry = read_json(line)
        said = entry.get("text", entry.get("answer")) if isinstance(entry, dict) else None
        if not isinstance(said, str) or not isinstance(entry.get("prompt", ""), str):
            raise UserError(
                f'text {str(path)!r}, line {number}: expected {{"text": ...}} or {{"prompt": ..., "answer": ...}}'
            )
        yield f"{path.name}:{entry.get('id', number)}", entry.get("prompt", ""), said


def answers(
    engine: "LocalEngine",
    prompts: "Sequence[Prompt]",
    values: Mapping[str, Any],
    variables: "TemplateVariables",
    tell: Tell,
    asked: Callable[[], bool],
) -> list[GivenText]:
    """The target's own answers, turn by turn, several at a time.

    asked: whether the user wants to stop; answers that are whole then are kept.
    """
    heard: dict[str, list[str]] = {str(prompt.id): [] for prompt in prompts}
    texts, total = list[GivenText](), sum(len(prompt.turns) for prompt in prompts)
    tell(0, total, "answers")
    for turn in range(1, max(len(prompt.turns) for prompt in prompts) + 1):
        given = dict[str, list[int]]()
        asking = list[Text]()
        for prompt in prompts:
            if turn > len(prompt.turns) or asked():
                continue
            said = heard[str(prompt.id)]
            said += [*prompt.before(turn), prompt.turns[turn - 1]]
            ids = given[str(prompt.id)] = engine.tokenise(said, True, prompt.system, variables)
            asking.append(Text(str(prompt.id), ids, prompt.max_new_tokens or values["length"]))
        for name, ids in _written(engine, asking, values, asked):
            heard[name].append(engine.text(ids))
            texts.append(GivenText(name, tuple(given[name]), tuple(ids), turn))
            tell(len(texts), total, "answers")
    return texts


def _written(
    engine: "LocalEngine", asking: Sequence[Text], values: Mapping[str, Any], asked: Callable[[], bool]
) -> Iterator[tuple[str, list[int]]]:
    """(name, answer) of each text, as they end."""
    said: dict[str, list[int]] = {}
    ended = set[str]()
    for name, event in engine.stream_many(AR, values, asking, min(BATCH, max(1, len(asking)))):
        if isinstance(event, FailedText):
            raise UserError(f"prompt {name}: {event.error}")
        if isinstance(event, Round):
            said.setdefault(name, []).extend(event.emitted)
        elif name in said and name not in ended:
            ended.add(name)
            yield name, said[name]
        if asked():
            return


def from_trace(path: Path) -> list[GivenText]:
    """The answers in a full trace, one of each prompt and turn. Raises `UserError` for another file."""
    from ablation.results.traces.generations import read_generations

    texts: dict[tuple[str, int], GivenText] = {}
    for generation in read_generations(path):
        record = generation.record
        key = str(record.id), record.turn
        if key not in texts and record.output_ids:
            texts[key] = GivenText(key[0], generation.prompt_ids, tuple(record.output_ids), record.turn)
    if not texts:
        raise UserError(f"{str(path)!r} holds no whole answer; expected a trace of a run with --full-trace")
    return list(texts.values())
