"""What a command line asks for, checked as a whole before a model is loaded. No torch is imported here."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ablation.plan.file import refuse_full_trace
from ablation.plan.formats import NAME, read_formats
from ablation.plan.prompts.file import Prompt, parse_prompt, read_prompts
from ablation.plan.prompts.folder import read_folder
from ablation.plan.prompts.sets import ALL, find_sources, gather, set_names
from ablation.plan.traced import FULL, Traced
from ablation.results.traces.trace import is_trace
from engines.speculative_config import ServerConfig, parse_speculative_config
from sampling.methods.settings import PARAMETERS, Settings
from utils.device.torchrun import refuse_under_torchrun
from utils.errors import UserError, checked_text, wrong_value
from utils.files import checked_path
from utils.parameter import Values
from utils.text import quoted

if TYPE_CHECKING:
    from sampling.prefilled.files import StateFile, StateFiles
    from sampling.prefilled.wire import AskedPrefills

    ReadBefore = StateFiles | AskedPrefills


STDIN = "-"
_LONGEST_SET = 60  # what is longer is no misspelt name of a set


def choose_prefills(
    place: str | None, batch: str | None, engines: Sequence[str] | None, settings: Settings
) -> "ReadBefore | None":
    """Where prompts come from that were read before. Raises `UserError` where nobody could go on from them."""
    if place is None:
        return None
    refuse_under_torchrun("--from", "a run without, or one process, which has all keys and values of a text")
    for name, other in (("--batch", batch), ("--engine", engines)):
        if other:
            raise UserError(f"--from and {name} given; expected one of them: a prefilled state is for one text of ours")
    if not settings["cache"]:
        raise UserError("--from and cache off given; expected the cache on: it is what a prefilled state goes into")
    from sampling.prefilled.files import StateFiles  # with torch, for which other calls wait
    from sampling.prefilled.wire import Address, AskedPrefills

    address = Address.parse(place, "--from")
    if address is not None:
        return AskedPrefills(address)
    if not (path := checked_path(place, "--from")).exists():
        raise UserError(
            f"--from {quoted(place)} given, and there is no such file or folder; expected what `infer.py prefill` "
            "wrote, or HOST:PORT where it listens, such as 127.0.0.1:7070"
        )
    return StateFiles(path)


def choose_prompts(prompt: str | None, prompts: Path | None, prompts_dir: str | None = None) -> tuple[Prompt, ...]:
    """The one prompt that was typed, or those of a file, a built-in set or a folder of files. Raises `UserError`."""
    sources = {"--prompt": prompt, "--prompts": prompts, "--prompts-dir": prompts_dir}
    asked = [option for option, value in sources.items() if value is not None] or ["--prompt", "--prompts"]
    if len(asked) > 1:
        raise UserError(f"{asked[0]} and {asked[1]}: expected one of them")
    if prompts_dir is not None:
        return read_folder(prompts_dir)
    if prompts is not None:
        name = str(prompts)
        if name in (*set_names(), ALL) or (name.isidentifier() and len(name) < _LONGEST_SET and not prompts.exists()):
            return gather(find_sources([str(prompts)], Path()))
        return read_prompts(prompts)
    if prompt == STDIN:
        prompt = sys.stdin.read().strip()
    if not prompt or not prompt.strip():
        raise wrong_value("--prompt", prompt, "a text that is not empty")
    return (Prompt(1, (checked_text(prompt, "--prompt"),)),)


def choose_read_before(
    prompt: str | None, prompts: Path | None, prompts_dir: str | None, prefills: "ReadBefore | None"
) -> tuple[Prompt, ...]:
    """The same, or where nothing is given those that files of states name. Raises `UserError`."""
    files = getattr(prefills, "files", ())
    if prompt is None and prompts is None and prompts_dir is None and any(file.prompt for file in files):
        return _prompts_of([file for file in files if file.prompt])
    played = choose_prompts(prompt, prompts, prompts_dir)
    for method in played:
        if files and len(method.turns) > 1:
            raise UserError(
                f"--from: prompt {method.id!r} has {len(method.turns)} turns, and a file holds the state of the first; "
                "expected prompts of one turn, or HOST:PORT, where any can be read"
            )
    return played


def _prompts_of(files: "Sequence[StateFile]") -> tuple[Prompt, ...]:
    """The prompts of states, by the names of their files where ids are there twice. Raises `UserError`."""
    prompts_read = []
    for number, prompt_file in enumerate(files, start=1):
        try:
            prompts_read.append(parse_prompt(prompt_file.prompt, number))
        except UserError as error:
            raise UserError(f"{str(prompt_file.path)!r}: its prompt: {error}") from None
    if len({str(prompt.id) for prompt in prompts_read}) == len(prompts_read):
        return tuple(prompts_read)
    return tuple(replace(prompt, id=file.path.stem) for prompt, file in zip(prompts_read, files, strict=True))


def choose_config(text: str | None, methods: str | None, models: Mapping[str, Any]) -> ServerConfig | None:
    """The server's configuration, which must not be contradicted by the options beside it.

    models: the options of loading that were given.
    """
    if text is None:
        return None
    if methods is not None:
        raise UserError("--speculative-config names the method; --methods cannot be given as well")
    config = parse_speculative_config(text)
    for option, model in config.models.items():
        if models.get(option) not in (None, model):
            value = quoted(models[option])
            raise UserError(f"--{option} {value} and model {quoted(model)} of --speculative-config differ")
    return config


def choose_models(options: Values, config: ServerConfig | None) -> Mapping[str, Any]:
    """The options of loading, with the server's; the formats of the target's weights are checked."""
    models = {**options, **(config.models if config else {})}
    return {**models, NAME: read_formats(models[NAME])} if NAME in models else models


def choose_settings(assignments: Sequence[str], named: Sequence[tuple[str, object]]) -> Settings:
    """Settings from `name=value` texts and from options of their own (None = not given), each given once."""
    pairs = []
    for text in assignments:
        name, equals, value = text.partition("=")
        usage = PARAMETERS[name].usage
        if not equals:
            raise UserError(f"--set {quoted(text)} given; expected {name}=VALUE, where VALUE is {usage}")
        pairs.append((name, value))
    pairs += [(name, str(value)) for name, value in named if value is not None]
    texts: dict[str, str] = {}
    for name, value in pairs:
        if name in texts:
            raise UserError(f"{name} is given twice, as {quoted(texts[name])} and {quoted(value)}; expected once")
        texts[name] = value
    settings = Settings()
    settings.assign_all(pairs)
    return settings


def choose_traced(path: Path | None, full: bool, batches: Sequence[int]) -> Traced:
    """How much of the run is traced. Raises `UserError` for a full trace that has no file, or of batches."""
    traced: Traced = FULL if full else True
    if full and path is None:
        raise UserError("--full-trace given; expected --trace FILE.jsonl beside it")
    refuse_full_trace(traced, batches)
    return traced


def open_trace(path: Path | None) -> TextIO | None:
    """A trace file to write line by line, or None. What it holds stays until the first round is written.

    Raises `UserError` for a path that cannot be written, and for a file that holds anything but a trace.
    """
    if path is None:
        return None
    try:
        if path.is_file() and not is_trace(path):
            raise UserError(f"{str(path)!r} exists and is not a trace; it was left alone. Choose another name")
        return path.open("a", encoding="utf-8", buffering=1)
    except (OSError, ValueError) as error:
        raise UserError(f"{str(path)!r} cannot be written: {getattr(error, 'strerror', None) or error}") from None
