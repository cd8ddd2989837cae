"""What a command line says in place of a plan file; the options of `scripts/run_ablation.py` are declared here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ablation.plan.grid import Configuration
from sampling.methods.settings import PARAMETERS
from utils.errors import UserError
from utils.option import option
from utils.text import quoted


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What holds instead of the file; None or empty: nothing. `pair` holds what was given of `LoadOptions`.

    runs: in place of the file's methods; open_runs: only where it names none.
    """

    prompt: str | None = option(None, "One prompt instead of the plan's.", "TEXT")
    prompts: tuple[str, ...] = option(
        (), "dialogue, translation, long, code, grounded, all of these, json, or a file (docs/prompts.md).", "SET|FILE"
    )
    prompts_dir: str | None = option(None, "A folder of prompt files, a set each (docs/prompts.md).", "DIR")
    methods: str | None = option(None, "Only these methods.", "NAME,...")
    gamma: str | None = option(None, "Draft lengths to try, such as 2,4,6,8.", "N,...")
    assignments: tuple[str, ...] = option((), "Values of any parameter; repeatable.", "NAME=VALUE,...", flag="--set")
    processors: tuple[str, ...] = option((), 'Such as "nucleus 0.8 0.9"; repeatable.', "NAME ARGS", flag="--processor")
    seeds: int | None = option(None, "Number of seeds.", minimum=1)
    thinking: str | None = option(None, "Thinking, by the chat template's switch; default: auto.", "on|off|auto")
    chat_template_kwargs: str | None = option(None, "Variables of the chat template, as a JSON object.", "JSON")
    grammar: str | None = option(None, "What answers must be: a file, json or off (docs/grammar.md).", "FILE|json|off")
    repeats: int | None = option(None, "Number of runs of the whole grid, interleaved.", minimum=1)
    length: int | None = option(None, "Maximum number of new tokens.", minimum=1)
    limit: int | None = option(None, "Maximum number of prompts.", minimum=1)
    batch: str | None = option(None, "Prompts answered at a time, such as 1,4,16.", "N,...")
    prefill_chunk: int | None = option(
        None, "Rows of prompts that a round of a batch reads; 0: each prompt alone.", minimum=0
    )
    rate: str | None = option(None, "Prompts that arrive a second (Poisson), with --batch.", "R,...")
    slo: str | None = option(None, "Fast enough, for goodput: ttft:MS,tpot:MS.", "SLO")
    share_prefill: bool = option(False, "Read each prompt once for all configurations (docs/scale.md).")
    trace: bool | None = option(None, "Write each round to a JSONL file.")
    full_trace: bool = option(False, "Write each round with all that replay needs; takes twice the time.")
    pair: Mapping[str, Any] = field(default_factory=dict)
    runs: tuple[Configuration, ...] = ()
    open_runs: tuple[Configuration, ...] = ()

    def parameters(self) -> dict[str, str]:
        """Lists of values by parameter, by the options that name one and `--set`.

        Raises `UserError` for one that is there twice.
        """
        options = ("gamma", "thinking", "chat_template_kwargs", "grammar")
        lists = {name: value for name in options if (value := getattr(self, name)) is not None}
        for text in self.assignments:
            name, equals, values = text.partition("=")
            if not equals:
                raise UserError(f"--set {quoted(text)} given; expected {PARAMETERS[name].name}=VALUE,...")
            if name in lists:
                raise UserError(f"{name} is given twice, as {quoted(lists[name])} and {quoted(values)}; expected once")
            lists[name] = values
        return lists
