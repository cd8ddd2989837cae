"""Which acceptance is this? What others call acceptance, and what it is here."""

from typing import NamedTuple


class AcceptanceName(NamedTuple):
    """A name that somebody gives an acceptance. over: what is averaged. bonus: whether the target's token counts."""

    whose: str
    name: str
    formula: str
    over: str
    bonus: bool | None
    ours: str


_DRAFTING = "rounds that drafted"
_EXPORTED = "1 + accepted / first entry of `tested_at`; exported"
NAMES = (
    AcceptanceName("here", "acceptance rate", "a / d", "drafts", False, "`acceptance_rate`"),
    AcceptanceName("here", "alpha", "a / t", "judged positions", False, "`alpha`"),
    AcceptanceName(
        "here", "tokens a round", "T / n", "rounds", True, "`tokens_per_round`; `tokens_by_round` of the export"
    ),
    AcceptanceName(
        "here", "conditional, by position", "a_i / t_i", "rounds that judged position i", False, "`conditional`"
    ),
    AcceptanceName("here", "joint, by position", "a_i / n", "rounds", False, "`joint`"),
    AcceptanceName("here", "by request", "mean of T / n", "requests", True, "`tokens_by_request`"),
    AcceptanceName("vLLM", "`mean_acceptance_length`", "1 + a / n_d", f"{_DRAFTING}, of a request", True, _EXPORTED),
    AcceptanceName("vLLM", "`draft_acceptance_rate`", "a / d", "drafts", False, "`acceptance_rate`; exported"),
    AcceptanceName(
        "vLLM", "per-position acceptance rate (log)", "a_i / n_d", _DRAFTING, False, "`joint` times n / n_d"
    ),
    AcceptanceName("SGLang", "`spec_accept_length`", "T / n", "rounds of a request", True, "`tokens_per_round`"),
    AcceptanceName("SGLang", "`spec_accept_rate`", "a / (n K)", "drafts, K in every round", False, "`acceptance_rate`"),
    AcceptanceName(
        "TensorRT-LLM", "`avgDecodedTokensPerIter`", "T / n", "rounds of a request", True, "`tokens_per_round`"
    ),
    AcceptanceName(
        "TensorRT-LLM", "`acceptanceLength` of an iteration", "1 + a / n_d", "requests that drafted", True, _EXPORTED
    ),
    AcceptanceName("llama.cpp", "draft acceptance", "a / d", "drafts", False, "`acceptance_rate`"),
    AcceptanceName("llama.cpp", "mean acceptance length", "1 + a / n_d", _DRAFTING, True, _EXPORTED),
    AcceptanceName("llama.cpp", "acceptance rate per position", "a_i / n_d", _DRAFTING, False, "`joint` times n / n_d"),
    AcceptanceName("FastDeploy", "`accept_ratio`", "1 - n / T", "emitted tokens", False, "1 - 1 / `tokens_per_round`"),
    AcceptanceName("FastDeploy", "average accept length", "T / n", "rounds", True, "`tokens_per_round`"),
    AcceptanceName(
        "FastDeploy", "`accept_ratio_per_head`", "a_i / a_(i-1)", "rounds that accepted i - 1", False, "`conditional`"
    ),
    AcceptanceName("transformers", "none: `generate` returns no acceptance", "", "", None, ""),
    AcceptanceName(
        "NVIDIA specdec_bench", "`Request_AL`", "T / n", "rounds of a request", True, "`tokens_per_round`; exported"
    ),
    AcceptanceName(
        "NVIDIA specdec_bench", "`Average_AL`", "mean of T / n", "requests", True, "`tokens_by_request`; exported"
    ),
    AcceptanceName(
        "NVIDIA specdec_bench",
        "`Joint_Acceptance_Rate`, key L",
        "rounds that emitted L or more / n",
        "rounds",
        True,
        "`joint` at position L - 1, but for rounds that an accepted stop token ended there; exported",
    ),
    AcceptanceName(
        "`speculation_profile.json`",
        "`marginal_accept_rates`",
        "rounds that emitted i + 1 or more / n",
        "rounds",
        False,
        "`joint`, but for rounds that an accepted stop token ended there; exported",
    ),
    AcceptanceName(
        "`speculation_profile.json`",
        "`conditional_accept_rates`",
        "a_i / a_(i-1), a_0 = n",
        "rounds that accepted i - 1",
        False,
        "`conditional`, where every round drafts as far; exported",
    ),
    AcceptanceName(
        "`speculation_profile.json`", "`mean_accept_length`", "T / n", "rounds", True, "`tokens_per_round`; exported"
    ),
    AcceptanceName("Spec-Bench", "#Mean accepted tokens", "T / n", "rounds", True, "`tokens_per_round`"),
    AcceptanceName(
        "Leviathan et al., arXiv 2211.17192", "alpha", "expected a / t", "judged positions", False, "`alpha`"
    ),
    AcceptanceName(
        "EAGLE, arXiv 2401.15077", "tau, average acceptance length", "T / n", "rounds", True, "`tokens_per_round`"
    ),
    AcceptanceName("Medusa, arXiv 2401.10774", "acceleration rate", "T / n", "rounds", True, "`tokens_per_round`"),
)


_SECTION = """## Which acceptance is this?

One run has many acceptance figures. The table uses these symbols:

- a: accepted tokens; d: drafted tokens; T: emitted tokens
- t: judged positions; n: rounds; n_d: rounds that drafted
- a_i: rounds that accepted a draft at position i, from 1; t_i: rounds that judged a draft at position i

T = a + n, minus one for an answer that ends with an accepted stop token. The *bonus token* is the token that the target
adds to every round. A length that includes it is never below 1.

{names}

Three of them are often confused. A rate over *drafts* falls with longer drafts, because drafts after a rejection are
never judged. Alpha does not fall. A *conditional* rate counts only drafts whose predecessors were accepted. A *joint*
rate (marginal, unconditional) counts all rounds. 0.8, 0.6, 0.4 and 0.8, 0.48, 0.192 are the same drafter. A mean *by
request* gives a short answer the same weight as a long one.

On trees d counts all nodes. A position counts once, whatever number of nodes it has. So rates over drafts are small.
Alpha, lengths and all figures by position keep their meaning.

`scripts/report_ablation.py` with `--export FOLDER` writes `acceptance.csv` and for each configuration
that drafted

- `vllm.jsonl`, a line a request: `metrics.speculative_decoding` as vLLM's server returns it
  (`--per-request-spec-decode-metrics detailed`), null where no round drafted. `num_spec_tokens` is the longest
  draft of the configuration, null on trees; `per_step_drafted` counts a tree's nodes. Results of older versions
  lack the two lists by step.
- `acceptance_rate.json` of NVIDIA's specdec_bench, methodology 1.0. All rounds count: some of its versions leave
  out the first or the last. Requests are named by our ids, where it counts them.
- `speculation_profile.json` 1.0 ([Model-Optimizer, pull request
  2247](https://github.com/NVIDIA/Model-Optimizer/pull/2247), open). K is the longest draft, on a tree the deepest
  position judged. `chain_analytic` is said of a model or head that drafted chains of one length, else
  `measured_per_k`. A round without drafts counts as one that accepted none. Null, because their form could not be
  verified: `draft_checkpoint`, `target_model`, `block_size` and `per_category`. `lossless` is in
  `measurement_conditions`.

| column of `acceptance.csv` | meaning |
|---|---|
| `requests`, `rounds`, `rounds_that_drafted` | how many; a turn of a conversation is a request |
| `conditional`, `joint` | by position, numbers between spaces |
| `tokens_by_round`, `accepted_by_round` | mean over rounds, with and without the bonus token |
| `tokens_by_request`, `accepted_by_request` | mean over requests of such means |
"""


def acceptance_names() -> str:
    """The section of docs/metrics.md that sets them side by side."""
    bonus = {True: "yes", False: "no", None: ""}
    head = ["| whose | name | formula | averaged over | bonus token | here |", "|---|---|---|---|---|---|"]
    rows = [
        f"| {row.whose} | {row.name} | {row.formula} | {row.over} | {bonus[row.bonus]} | {row.ours} |" for row in NAMES
    ]
    return _SECTION.format(names="\n".join([*head, *rows]))
