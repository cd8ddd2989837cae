"""Reference pages that are generated from the code, so that they cannot say anything else."""

from collections.abc import Sequence
from textwrap import fill

from ablation.results.acceptance_names import acceptance_names
from ablation.results.column import keys, markdown
from ablation.results.record import Record
from ablation.results.table import columns, setting_columns
from ablation.results.tables.comparison import COLUMNS
from ablation.results.traces.full_trace import FullLine, RunLine
from ablation.results.traces.trace import TraceLine
from sampling.measure.ledger import PARTS
from sampling.methods.settings import PARAMETERS


def _wrapped(names: Sequence[str]) -> str:
    return fill(", ".join(f"`{name}`" for name in names), 110, break_on_hyphens=False)


def _settings() -> str:
    rows = [f"| `{name}` | {PARAMETERS[name].help} |" for name in setting_columns()]
    return "\n".join(["| setting | meaning |", "|---|---|", *rows]) + "\n"


def _headings() -> str:
    rows = [f"| {column.heading} | {column.meaning} |" for column in COLUMNS]
    return "\n".join(["| heading | meaning |", "|---|---|", *rows]) + "\n"


# What is in summary.csv, and where it is not plain.
_SUMMARY = {
    "target_weights": "the format of the target's weights; where a file holds several, `processor` names it too",
    "prompts, failed, runs": "how many prompts ran, runs failed, and runs count",
    "tokens_per_s_mean, tokens_per_s_sd": "mean over prompts, and the deviation between prompts",
    "ratio_of_sums": "all tokens over all seconds, relative to AR's in the same blocks",
    "speedup, speedup_low, speedup_high": "median over prompts with its interval, of this speedup alone",
    "predicted": "median over prompts of the speedups that the manifest's profile gives for their rounds "
    "([rule](profile.md#predicted-and-measured))",
    "measured_over_predicted, measured_over_predicted_low, measured_over_predicted_high": "median over prompts of "
    "each one's measured over its predicted speedup, with its interval",
    "predicted_at_means": "the speedup of the mean round behind the mean text: all tokens over all rounds, priced once",
    "factor_rows, factor_prompts": "from there to `predicted`: each round priced by itself; the median of prompts in "
    "place of the ratio of sums",
    "factor_ar, factor_forwards, factor_drafting, factor_rest, factor_medians": "from `predicted` to `speedup`: "
    "measured times in place of priced ones, geometric means over prompts; what medians leave",
    "compared": "n: prompts on which it and AR ran",
    "p, p_holm": "Wilcoxon's signed-rank test, two-sided; after Holm's correction for all configurations against AR "
    "of the same processor and task",
    "effect": "rank-biserial correlation: 1 where it is faster on every prompt",
    "against_ar": "the verdict of the corrected test at 0.05: `faster`, `slower`, `no difference shown`, or `too few "
    "prompts to show any`: even if all agreed. The control is tested alone, and its verdict is led by `noise:`",
    "prompts_for_5_percent": "how many prompts would show a gain of 5 % in 80 of 100 repetitions, if they spread as "
    "these do ([rule](intervals.md#how-many-prompts))",
    "acceptance_rate": "accepted / drafted, over all runs",
    "alpha, alpha_low, alpha_high": "accepted / tested, over all runs, with its interval",
    "tokens_per_round, tokens_per_round_low, tokens_per_round_high": "new tokens / rounds, with its interval",
    "c": "median over runs",
    "mean_gamma, min_gamma, max_gamma": "drafts that the rule asked for: mean over rounds, least, most",
    "mean_normalised_entropy": "mean over runs",
    "rows": "n of v(n): rows that the target verifies in a round, 1 + drafted / rounds",
    "draft_cost, v, other_cost": "a round's drafting, verifying and rest, in forwards of AR",
    "ar_round": "a round of AR in its own forwards: 1 + its rest",
    "compared_tokens_per_round": "new tokens / rounds, in the blocks with AR, which its costs are of",
    "break_even": "tokens a round at which it is as fast as AR",
    "token_verify_ms, token_growth_ms, token_draft_ms, token_judging_ms, token_rest_ms": "the ledger, as in a record: "
    "all rounds over all tokens, in the blocks with AR",
    "break_even_alpha": "the alpha at which it would be as fast as AR, as in a record",
    "exact, tie, bug, not_compared": "runs by how their output compares with AR's",
    "ended_stop, ended_length, ended_context": "runs by how they ended",
    "lossless": "`lossless`, `LOSSY` or `other output`",
}


def _parts() -> str:
    return "".join(f"- {part}: {meaning}\n" for part, meaning in PARTS.items())


def _summary() -> str:
    names = {names: ", ".join(f"`{name}`" for name in names.split(", ")) for names in _SUMMARY}
    rows = [f"| {names[columns]} | {meaning} |" for columns, meaning in _SUMMARY.items()]
    return "\n".join(["| columns | meaning |", "|---|---|", *rows]) + "\n"


def summary_columns() -> list[str]:
    """The documented columns of summary.csv."""
    return [name for names in _SUMMARY for name in names.split(", ")]


_PAGE = """# What is measured

Generated from the dataclasses that write these keys; do not edit (`uv run scripts/generate_docs.py`).

p is the target's distribution, q the drafter's, both after the processor. A round is one target forward. It judges the
drafts position by position, up to and including the first position without an accepted draft. It emits the accepted
drafts and one token of the target's own. A position is judged once and accepted at most once, on a chain and on a tree.
So alpha of a chain and alpha of a tree can be compared. `drafted` counts every draft, and a tree has several drafts at
a position. Unknown is null: with nothing drafted, a rate is null, not 0. Times are measured inside the decode loop.
They never include the display or the recording of the output.

## A record

One object a line for each prompt, turn, method and repeat (`infer.py run --json`).

{record}
## A row of a results file

`scripts/run_ablation.py` writes the same keys as the columns of a CSV file, except `output_ids`. `settings` becomes one
column a setting. Its cell is empty where the method does not use the setting. Unknown is an empty cell. A list is
numbers between spaces. `id`, `turn`, `configuration`, `processor`, `seed` and `repeat` identify a row: no two rows
share them all. The columns, in order:

{columns}

The settings:

{settings}
## The comparison table

The session, `infer.py run` and the summary at the end of an ablation show the same table. One run has `tokens`. The
summary of many runs has the median speedup, its interval and the ratio of sums instead. On a narrow terminal each row
takes two lines. Unknown is -.

{headings}
## The ledger: where the time went

The time of a token in five parts, which add up to decode_s / new_tokens:

{parts}
The time of a round of AR comes from AR's own run on the same prompt. Without such a run it comes from the pair's
profile. A part below 0 is noise. A token of AR has the parts verify and rest alone, so fewer rounds save

    saved = AR's token - verify - rest,    speedup = AR's token / (verify + growth + draft + judging + rest)

and the method is faster where the other three parts together take less than is saved. It would be as fast as AR at

    break-even = tokens a round / speedup

tokens a round, at the same cost of a round. The break-even alpha is the alpha with this number of tokens a round. For
it, the acceptance at every position is scaled by the same share of the way to 1 (or to 0). The share of rounds that
draft at a position stays the same, among the rounds that reach the position.

**Taking tokens back.** Where a target keeps a row of each token, a rejection is a crop and costs nothing. A target with
recurrent states goes back to states of before. Its recurrence runs again over the round's root and its accepted
drafts, or they go through the whole model again, in front of the next round (`rollback_way`). The profile of the pair
times this: b for a rejection, w for each token that is read or replayed again. In rounds with n drafts, of which the
first i are all accepted with probability S_i (S_0 = 1),

    B = r b + t w,    r = 1 - S_n,    t = S_0 + S_1 + ... + S_(n-1) - n S_n

r is the probability of a rejection, t the mean number of tokens that are read again. *Example:* S = 0.8, 0.5, b 6 ms
and w 1 ms: r = 0.5 and t = 1 + 0.8 - 2 x 0.5 = 0.8, so B = 3.8 ms a round.

Measured rounds hold B already, in the part growth, and so does break-even. The sentence of a slow row says how much of
growth it is, with r and t counted from the run: r = (tested - accepted) / rounds, t = `reread` / rounds. c holds none
of it. The break-even alpha changes B, and nothing else in a round. With E tokens a round, it is the alpha with

    E(alpha) = break-even - (B(now) - B(alpha)) / AR's token

*Example:* one draft a round, AR's token 20 ms, the rest of a round 22 ms, b 6 ms, w 1 ms: 1 + a = 1.1 + 0.35 (1 - a),
so a = 0.33. Were taking back free, it would be 0.10.

The session (`/why`), `infer.py run` and a report show the parts. For each row below 1 a sentence names the time that
was saved and the parts that cost it again. Beam search and the drafter model alone have no ledger, because their output
is not the target's.

## Joules a token

The counters are read before a run and behind it, outside of all measured times, and never in a round. A run of a batch
is all of its texts, and each row has the joules of the whole batch over all its tokens.

- `package`: RAPL on Linux, of Intel and AMD, `/sys/class/powercap/intel-rapl:*`, the zones named `package-N`. It holds
  cores, caches, graphics and memory controllers. It holds no memory, cards, fans or losses of the power supply.
- `dram`: RAPL, the zones named `dram` within packages, where a processor has them: the memory modules of a package.
- `gpu`: NVML, the total energy since the driver's start, where `nvidia-ml-py` is installed: the engine's card.

A package's count has those of its zones `core` and `uncore` in it, and `psys` is a sum over the machine. These are left
out, so that nothing counts twice. The count of `dram` is no part of a package's. A count of RAPL begins again at 0
behind `max_energy_range_uj`: where the later count is below the earlier one, that range is added. In a span in which
600 W would fill the range, it may have come round twice, and the cell is empty.

**Idle power.** Once in a process, before its first measured run, with the models loaded, the process sleeps three times
for half a second. The least power of the three is `idle_watts`. It is taken off:

    joules_per_token = (joules - idle_watts * span) / new_tokens

*Example:* two packages with memory. In a span of 10 s their counts grow by 300, 260, 25 and 15 J: 600 J. Idle, the four
take 18, 16, 3 and 3 W: 40 W. Each of 100 tokens took (600 - 40 * 10) / 100 = 2 J. The first package's count went from
262,100 J over its range of 262,143 J to 257 J: 257 - 262,100 + 262,143 = 300 J.

**What is in it.** A counter knows the whole package: other processes too. `other_cores` says whether the machine was
free, as it does for times. The span also holds what lies between rounds: showing, recording, making ids of the prompt.
Where it differs from the measured time by more than 10 %, it holds other work or lacks some, and the cell is empty. So
it is with captured graphs, with the walks of a full trace, for prompts that were read before, and for a short first
batch of a process, which loads code. `energy_of` says which parts were counted. Joules of different parts do not
compare.

**When it is unknown.** Unknown is empty, never 0:

- The machine has no counters, as most virtual machines. Then nothing waits for an idle machine either.
- The files of RAPL are root's, as on most systems. A warning says so once, with the command that allows reading until
  the next start: `sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj`. Linux closed them because other users can
  guess secrets from a fine-grained count (CVE-2020-8694).
- The process is bound to some of the cores. Who uses the others is unknown. A card counts all the same.
- Several processes share the model, or a server answers, which may be elsewhere.
- On CUDA, the card has no counter or `nvidia-ml-py` is not installed.
- A text of the batch failed, or the run took less than the idle machine.

A report has a table of joules against AR, and names for each method the setting of the least energy beside the fastest.
NVML's counter was tested with a stand-in (never run on a GPU).

## A report

`scripts/report_ablation.py` writes these columns, a row for each processor, configuration and task (`summary.csv`). The
unit of replication is the prompt; all intervals are 95 %, over prompts, and need five of them
([how](intervals.md)).

{summary}
`pairs.csv` has the same tests for pairs, in this order:

- the pairs that the plan names in `compare`;
- each configuration against AR, as in the summary;
- the configurations against each other, which are a family of their own.

Configurations that drafted and emitted the same in every round are reported as one. Their difference is noise and is
not tested. In files of older versions `tested` counted the siblings of a tree. For such a file alpha is computed from
`tested_at`, and the report says so.

{acceptance}
## A trace line

One object a line for each round (`infer.py run --trace FILE.jsonl`).

{trace_line}
## A full trace

`--full-trace` adds these keys to each line ([replay](replay.md)). In lines of kind `walk` the keys `q`, `p`, `path`,
`q_top` and `p_top` are empty. The time of a walk is not part of any measured time.

{full_trace}
A generation ends with a line of kind `run`:

{run_line}"""


def metrics_page() -> str:
    """docs/metrics.md: every key of a record and of a trace line, and every heading of the comparison table."""
    return _PAGE.format(
        record=markdown(Record),
        columns=_wrapped(columns()),
        settings=_settings(),
        headings=_headings(),
        parts=_parts(),
        summary=_summary(),
        acceptance=acceptance_names(),
        trace_line=markdown(TraceLine),
        full_trace=_added(),
        run_line=markdown(RunLine),
    )


def _added() -> str:
    """The keys that only lines of a full trace have."""
    heading, rule, *rows = markdown(FullLine).splitlines()
    return "\n".join([heading, rule, *rows[len(keys(TraceLine)) :]]) + "\n"
