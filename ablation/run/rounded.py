"""What rounding the target's weights costs, said before a run of several formats: quality and memory."""

from collections.abc import Sequence

from rich.console import Console

from ablation.plan.grid import Plan
from ablation.plan.prompts.file import Prompt
from ablation.run.progress.bar import told
from sampling.forward.traffic import weight_bytes
from sampling.measure.quality import AnswerSums, Quality, summed_up
from sampling.measure.rounded import compare, greedy_run
from sampling.methods.chat_template import TemplateVariables
from sampling.pair.local_engine import LocalEngine
from utils.errors import UserError

MOST_PROMPTS, MOST_TOKENS = 12, 128
_MB = 1e6


def qualities(engine: LocalEngine, formats: Sequence[str], plan: Plan, console: Console) -> dict[str, Quality]:
    """The quality of formats against the engine's own weights, on its greedy answers to the plan's first prompts.

    At most `MOST_PROMPTS` of them, and `MOST_TOKENS` an answer; of a conversation its first turn. A prompt that cannot
    run is left out, as its row will say why; without any that can, nothing is known. Progress goes to `console`.
    """
    prompts = plan.prompts[:MOST_PROMPTS]
    sums: list[dict[str, AnswerSums]] = []
    with told(f"prompts for the quality of {', '.join(formats)}", console) as tell:
        tell(0, len(prompts))
        for done, prompt in enumerate(prompts, start=1):
            sums.append(_compared(engine, formats, plan, prompt))
            tell(done, len(prompts))
    answered = [sums_of for sums_of in sums if any(of_format.tokens for of_format in sums_of.values())]
    sizes = weights_in_bytes(engine, formats)
    full = sizes[engine.describe().target.stored]
    return {name: summed_up([sums_of[name] for sums_of in answered], sizes[name], full) for name in formats if answered}


def _compared(engine: LocalEngine, formats: Sequence[str], plan: Plan, prompt: Prompt) -> dict[str, AnswerSums]:
    """What one prompt tells of each format; nothing where it cannot run."""
    try:
        ids = engine.tokenise(prompt.opening, plan.values["chat"], prompt.system, TemplateVariables.of(plan.values))
        answer = greedy_run(engine, ids, min(MOST_TOKENS, plan.length(prompt))).output_ids
    except UserError:
        return {}
    full = engine.target
    return {name: compare(full, engine.in_format(name).target, ids, answer) for name in formats}


def weights_in_bytes(engine: LocalEngine, formats: Sequence[str]) -> dict[str, int]:
    """Bytes of the weights as they are loaded and in each format, the embedding, which they share, in each."""
    names = dict.fromkeys((engine.describe().target.stored, *formats))
    return {name: weight_bytes(engine.in_format(name).target.model) for name in names}


def memory_text(engine: LocalEngine, formats: Sequence[str]) -> str:
    """For people: what the weights of a run of several formats hold, which all stay in memory.

    Example: "weights in memory: full 540 MB, int8 200 MB, each with the embedding that they share".
    """
    sizes = weights_in_bytes(engine, formats)
    each = ", ".join(f"{name} {size / _MB:,.1f} MB" for name, size in sizes.items())
    return f"weights in memory: {each}, each with the embedding that they share"
