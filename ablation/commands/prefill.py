"""The command `prefill`: read prompts for runs to come, into files or over a socket."""

import json as json_module
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ablation.commands.run import Assignments, OnePrompt
from ablation.commands.shared.opened import opened
from ablation.commands.shared.options import Json, exit_statuses, load_chosen
from sampling.loading.options import LoadOptions
from sampling.methods.chat_template import TemplateOptions, TemplateVariables
from utils.device.torchrun import refuse_under_torchrun
from utils.errors import UserError
from utils.parameter import Values
from utils.text import shown

if TYPE_CHECKING:
    from ablation.plan.prompts.file import Prompt
    from sampling.methods.settings import Settings
    from sampling.pair.pair_engine import PairEngine

Prompts = Annotated[Path | None, typer.Option(metavar="SET|FILE.jsonl", help="A built-in set or a file of prompts.")]
Out = Annotated[
    Path | None,
    typer.Option(metavar="FILE|DIR", help="NAME.safetensors for one prompt, a folder for several."),
]
Listen = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Serve prefills at this address, until Ctrl-C.")]
StatesFor = Annotated[
    str | None,
    typer.Option(metavar="NAME,...", help="Methods whose hidden states are stored; default: every trained head."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")]


@opened(models=LoadOptions, told=TemplateOptions)
def prefill(
    *,
    prompt: OnePrompt = None,
    prompts: Prompts = None,
    out: Out = None,
    listen: Listen = None,
    methods: StatesFor = None,
    assignments: Assignments = None,
    told: Values,
    overwrite: Overwrite = False,
    models: Values,
    json: Json = False,
) -> None:
    """Read prompts with the target, and keep what they leave in it: keys, values, and the states that heads read.

    `infer.py run --from` goes on from it, with the tokens that it would have found by itself: from files, or from
    another process that listens.

    Exit status: 0 all were read, or Ctrl-C ended the listening; 1 a file could not be written; 2 the call is wrong;
    130 stopped by Ctrl-C, with the files that are whole by then.
    """
    from ablation.commands import request

    with exit_statuses():
        refuse_under_torchrun("prefill", "one process, which has all keys and values of a text")
        if (out is None) == (listen is None):
            raise UserError("--out and --listen: expected one of them")
        if listen is not None:
            named = {"prompt": prompt, "prompts": prompts, "methods": methods, **told}
            for name, option_value in named.items():
                if option_value is not None:
                    raise UserError(
                        f"--listen and --{name.replace('_', '-')} given; expected --listen alone: who asks names that"
                    )
            _listen(listen, models)
            return
        assert out is not None
        settings = request.choose_settings(assignments or (), tuple(told.items()))
        played = request.choose_prompts(prompt, prompts)
        paths = _paths(out, played, overwrite)
        engine = _engine(models)
        _write(engine, settings, played, paths, _layers(engine, methods, settings), json)


def _listen(text: str, models: Values) -> None:
    from sampling.prefilled.wire import Address, PrefillServer

    address = Address.parse(text, "--listen")
    if address is None:
        raise UserError(f"--listen {text!r} given; expected HOST:PORT, such as 127.0.0.1:7070 or :7070")

    with PrefillServer(address, partial(typer.echo, err=True)) as server:
        engine = _engine(models)
        server.pair = engine.pair
        name = engine.describe().target.name
        typer.echo(f"reading prompts with {name} for `run --from {server.address.text}`; Ctrl-C ends it", err=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def _engine(models: Values) -> "PairEngine":
    """The pair, of which the target's texts can be kept, and has read one. Raises `UserError`."""
    from sampling.forward.state import keeping
    from sampling.measure.warm_up import warm_up_prompt
    from sampling.pair.pair_engine import PairEngine
    from sampling.prefilled.reading import read_apart

    engine = PairEngine(load_chosen(models))
    keeping(engine.target)
    read_apart(engine.target, warm_up_prompt(engine, chat=False), ())
    return engine


def _layers(engine: "PairEngine", methods: str | None, settings: "Settings") -> list[int]:
    """The layers of which the drafters of methods read states; without methods those of every head of the pair."""
    from ablation.plan.choice import choose_methods

    if methods is None:
        named = [(kind, dict(settings)) for kind in engine.describe().heads]
    else:
        named = [(c.method, {**settings, **dict(c.parameters)}) for c in choose_methods(methods, settings)]
    for method, values in named:
        if lacking := engine.lacks(method, values):
            raise UserError(lacking)
    return sorted({layer for method, values in named for layer in engine.drafter(method, values).needs_hidden})


def _paths(out: Path, prompts: "Sequence[Prompt]", overwrite: bool) -> list[Path]:
    """A file for each prompt. Raises `UserError` where one is there, or cannot be."""
    from sampling.prefilled.files import SUFFIX
    from utils.files import checked_path

    checked_path(str(out), "--out")
    if out.is_file() and out.suffix != SUFFIX:
        raise UserError(f"--out {str(out)!r} is a file; expected a name that ends in {SUFFIX}, or a folder")
    if out.suffix and not out.is_dir():
        if out.suffix != SUFFIX:
            raise UserError(f"--out {str(out)!r} given; expected a name that ends in {SUFFIX}, or a folder")
        if len(prompts) > 1:
            raise UserError(f"--out {str(out)!r} given for {len(prompts)} prompts; expected a folder")
        if not out.parent.is_dir():
            raise UserError(f"--out {str(out)!r}: there is no folder {str(out.parent)!r}")
        paths = [out]
    else:
        out.mkdir(parents=True, exist_ok=True)
        width = len(str(len(prompts)))
        paths = [out / f"{number:0{width}}{SUFFIX}" for number in range(1, len(prompts) + 1)]
        if others := sorted(set(out.glob(f"*{SUFFIX}")) - set(paths)):
            raise UserError(
                f"--out {str(out)!r} holds {str(others[0].name)!r} of other prompts, which `run --from` would play as "
                "well; expected another folder"
            )
    taken = [path for path in paths if path.exists()]
    if taken and not overwrite:
        raise UserError(f"{str(taken[0])!r} exists; give --overwrite to replace it, or another --out")
    if not os.access(paths[0].parent, os.W_OK):
        raise UserError(f"--out {str(out)!r}: {str(paths[0].parent)!r} cannot be written to")
    return paths


def _write(
    engine: "PairEngine",
    settings: "Settings",
    prompts: "Sequence[Prompt]",
    paths: Sequence[Path],
    layers: Sequence[int],
    as_json: bool,
) -> None:
    """Read each prompt's first turn and write what it left, a line each."""
    from sampling.prefilled.files import write_state
    from sampling.prefilled.packed import PrefillMaker
    from sampling.prefilled.reading import read_apart

    target, maker = engine.target, PrefillMaker.of(engine.pair)
    for prompt, path in zip(prompts, paths, strict=True):
        ids = engine.tokenise(prompt.opening, settings["chat"], prompt.system, TemplateVariables.of(settings))
        handover = read_apart(target, ids, layers)
        size = write_state(path, handover, maker, _line(prompt))
        about: dict[str, object] = {
            "id": prompt.id,
            "file": str(path),
            "prompt_tokens": len(ids),
            "layers": list(layers),
        }
        about |= {"bytes": size, "kv_bytes": handover.state.bytes, "prefill_s": handover.prefill_s}
        typer.echo(
            json_module.dumps(about)
            if as_json
            else f"{shown(path)}: {len(ids):,} tokens, {size / 1e6:,.1f} MB, read in {handover.prefill_s * 1e3:,.1f} ms"
        )


def _line(prompt: "Prompt") -> str:
    """A prompt's first turn as a line of a prompt file, so that it can be played from the state alone."""
    from sampling.pair.prompt_ids import messages_of

    about: dict[str, object] = {"id": prompt.id, "task": prompt.task, "max_new_tokens": prompt.max_new_tokens}
    known = {name: value for name, value in about.items() if value is not None}
    return json_module.dumps({**known, "messages": messages_of(prompt.opening, prompt.system)})
