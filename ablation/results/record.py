"""One measured generation: the object that `run --json` prints and a row of a results file."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from ablation.results.column import column, metric
from sampling.measure.ledger import PARTS

CONSISTENT, DIFFERS = "consistent", "differs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One prompt, turn, method and repeat. Unknown is None; the fields' metadata document them."""

    id: str | int = column("", "the prompt's own id, else its line's number in the file")
    task: str | None = column("", "the prompt's `task` or `category`")
    turn: int = column("", "turn of the conversation, from 1; each method continues its own conversation")
    method: str = column("", "name of the method")
    lossless: bool | None = column(
        "",
        "the output has the target's own distribution; null for another output: the drafter model alone, beam search",
    )
    settings: dict[str, Any] = column("", "general settings and the method's own parameters")
    prompt_tokens: int | None = metric(
        "tokens",
        "length of the prompt, with the chat template and earlier turns; what an encoder reads, where there is one",
    )
    new_tokens: int | None = metric("tokens", "generated ids, a stop token included", "len(output_ids)")
    output_ids: list[int] | None = metric("", "the generated ids")
    text: str | None = column("", "the generated text, without special tokens")
    finish_reason: str | None = metric("", "`stop` (a stop token), `length` or `context` (the window is full)")
    prefill_s: float | None = metric(
        "s", "forwards over the prompt but its last token, the drafter's included; of the target, whoever ran them"
    )
    decode_s: float | None = metric("s", "all rounds; of a batch those that it was in, whole")
    ttft_s: float | None = metric(
        "s",
        "time to the first token; of a search, until one is settled",
        "prefill_s + kv_transfer_ms / 1000 + first round, and what it waited for in a batch until then",
    )
    wall_s: float | None = metric(
        "s",
        "the whole generation, as a watch shows it, capturing graphs included; nothing that shows or records",
        "prefill_s + kv_transfer_ms / 1000 + decode_s + waited_s + capture_s",
    )
    tokens_per_s: float | None = metric("1/s", "decoding speed", "new_tokens / decode_s")
    e2e_tokens_per_s: float | None = metric("1/s", "speed with prefill", "new_tokens / wall_s")
    rounds: int | None = metric("", "target forwards after prefill")
    drafted: int | None = metric("tokens", "drafts proposed, all nodes of trees")
    tested: int | None = metric(
        "tokens",
        "positions judged: up to and including the first at which no draft was accepted; a position counts once, "
        "however many drafts a tree has there",
    )
    accepted: int | None = metric("tokens", "drafts accepted and emitted")
    acceptance_rate: float | None = metric("", "share of the drafts that was kept", "accepted / drafted")
    alpha: float | None = metric("", "share of the judged positions at which a draft was kept", "accepted / tested")
    tokens_per_round: float | None = metric(
        "tokens", "1.00 for plain autoregression; null for a search", "new_tokens / rounds"
    )
    accept_hist: list[int] | None = metric("rounds", "entry i counts the rounds that accepted i drafts")
    draft_ms: float | None = metric(
        "ms", "a round's proposing and learning; null in a batch, whose rounds are nobody's own", "mean over rounds"
    )
    verify_ms: float | None = metric("ms", "a round's target forward; null in a batch", "mean over rounds")
    other_ms: float | None = metric(
        "ms", "a round's processors, judging and bookkeeping; null in a batch", "mean over rounds"
    )
    mean_gamma: float | None = metric("tokens", "the draft length that the rule asked for", "mean over rounds")
    mean_entropy: float | None = metric(
        "nats", "entropy of the drafter's raw distribution for a round's first draft", "mean over rounds that drafted"
    )
    peak_memory_mb: float | None = column(
        "MB (10^6 bytes)", "CUDA: peak allocated in this generation; else the process's peak resident memory so far"
    )
    speedup: float | None = column(
        "",
        "against `target` on the same prompt, turn, repeat and batch; null without it and for another output",
        "tokens_per_s / target_tokens_per_s",
    )
    first_divergence: int | None = column("", "greedy: index of the first new id that differs from `target`'s")
    divergence_verdict: str | None = column(
        "",
        "greedy: `exact`; `tie`, the two candidates' logits are closer than the dtype resolves; or `BUG`. "
        "Null where there is nothing to compare, also in later turns when the conversations differ",
    )
    error: str | None = column("", "why the generation failed; then everything unknown is null")
    repeat: int = column("", "repeat of the run, from 0")
    configuration: str = column(
        "", "the method with the parameters that set it apart in a grid; `control` is `target` once more"
    )
    c: float | None = column(
        "",
        "time a drafted token over the time of the reference's one-token forward",
        "(draft time / drafted) / (verify_ms of target)",
    )
    mean_normalised_entropy: float | None = metric(
        "", "mean of H / ln V: what EGAG reads", "mean over rounds that drafted"
    )
    tested_at: list[int] | None = metric(
        "rounds", "entry i counts the rounds that judged drafts at position i + 1; their sum is `tested`"
    )
    tokens_by_round: list[int] | None = metric("tokens", "what each round emitted, in order")
    min_gamma: int | None = metric("tokens", "the shortest draft length that the rule asked for")
    max_gamma: int | None = metric("tokens", "the longest; equal to the shortest where the rule never moved")
    score: float | None = metric(
        "nats", "what beam search ranked its answer by", "ln p / ((min_length + len) / (min_length + 1)) ** alpha"
    )
    inner_rounds: int | None = metric(
        "", "forwards of a drafter model that is drafted for itself (`staged`); null for every other drafter"
    )
    inner_tested: int | None = metric("tokens", "positions at which those forwards judged drafts, as `tested`")
    inner_accepted: int | None = metric("tokens", "drafts that they accepted")
    rounds_by_drafter: str | None = metric(
        "rounds", "who drafted in how many (`auto`): `mtp 40, none 3`, joined by + where together; null for one drafter"
    )
    token_verify_ms: float | None = column(
        "ms", f"ledger of a token: {PARTS['verify']}", "verify_ms of target / tokens_per_round"
    )
    token_growth_ms: float | None = column(
        "ms", f"ledger: {PARTS['growth']}", "(verify_ms - verify_ms of target) / tokens_per_round"
    )
    token_draft_ms: float | None = column("ms", f"ledger: {PARTS['draft']}", "draft_ms / tokens_per_round")
    token_judging_ms: float | None = column(
        "ms", f"ledger: {PARTS['judging']}", "(other_ms - the rest of target's round) / tokens_per_round"
    )
    token_rest_ms: float | None = column(
        "ms", f"ledger: {PARTS['rest']}; the five add up to decode_s / new_tokens", "that of target / tokens_per_round"
    )
    predicted_token_ms: float | None = column(
        "ms", "a token by the prices of the pair's profile, for the rounds as they were; null without a profile"
    )
    break_even_tokens: float | None = column(
        "tokens", "tokens a round at which it would be as fast as `target`", "tokens_per_round / speedup"
    )
    break_even_alpha: float | None = column(
        "",
        "the alpha at which it would be as fast: the acceptance at each position, scaled by the same share of the way "
        "to 1 or to 0; null where no alpha suffices",
    )
    started: str | None = column("UTC", "when the generation began")
    cpu_mhz: float | None = column("MHz", "clock of the processor when it ended, where the system tells it")
    other_cores: float | None = column("cores", "kept busy by others, guests of the hypervisor too; null within 0.2 s")
    kernel: str | None = column(
        "",
        "what computed the target's products: `own`, `packed` or `plain` on a CPU; null on a GPU and of "
        "encoder-decoder models, where there is no choice. What `draft_weights auto` came to is in `settings`",
    )
    target_weights: str | None = column(
        "",
        "the format of the target's weights, also for plain decoding: `full`, `int8`, `int4`, `fp8`, or the method of "
        "a checkpoint that was quantised before (`gptq`)",
    )
    compiled: bool | None = column("", "whether what lies between the target's products was compiled")
    batch_invariant: bool | None = column(
        "", "whether a row of the target has the same bits whatever is fed with it; no difference is a `tie` then"
    )
    graphs: bool | None = column("", "whether the target's forwards had fixed shapes; on CUDA they are captured graphs")
    bytes_per_token: float | None = column(
        "B",
        "that the target's forwards read at the least: weights, and the keys and values of the text; null for another "
        "output, without a cache, and for models without a lean forward",
        "(rounds * weights + cached tokens of each round * bytes of one) / new_tokens",
    )
    roofline_share: float | None = column(
        "",
        "decoding speed against a memory that did nothing but this, at the copy bandwidth measured once in the process",
        "bytes_per_token * tokens_per_s / bandwidth",
    )
    capture_s: float | None = column(
        "s", "of `wall_s`, capturing graphs, which no other time contains; null without graphs"
    )
    drafted_by_round: list[int] | None = metric("tokens", "drafts that each round proposed, in order")
    batch: int = column("texts", "answered at a time")
    rate: float = column("1/s", "prompts that arrived, at random (Poisson); 0: each came when there was room")
    queued_s: float | None = metric(
        "s", "from the prompt's arrival to its being read, here or elsewhere, which `ttft_s` leaves out"
    )
    live_rows: float | None = metric(
        "texts", "that shared a round with this one, itself included; null for a search", "mean over rounds"
    )
    tpot_ms: float | None = metric(
        "ms",
        "a token behind the first one, waiting for the prompts of others included; null for one token",
        "(wall_s - capture_s - ttft_s) / (new_tokens - 1)",
    )
    waited_s: float | None = metric(
        "s", "in a batch, for prompts of others between its rounds, and for rounds of others while its prompt was read"
    )
    throughput_tps: float | None = column(
        "1/s",
        "of the whole batch: tokens of all its texts over the seconds of all its rounds; null without a batch",
        "sum of new_tokens / seconds of rounds",
    )
    e2e_throughput_tps: float | None = column(
        "1/s",
        "the same over all the time from the first prompt's arrival, reading prompts and being idle included",
        "sum of new_tokens / time",
    )
    goodput_rps: float | None = column(
        "1/s",
        "texts of the batch that kept the plan's `slo`, its ttft from arrival (`queued_s + ttft_s`) and its tpot; null "
        "without one",
        "texts / time",
    )
    engine: str = column("", "who wrote it: `workbench`, our own loop, or another of the plan's engines by its name")
    engine_version: str | None = column("", "of that engine, where it is known")
    concurrency: int | None = column("", "requests under way at a time at another engine; null for our loop")
    referee: str | None = column(
        "",
        "greedy, another engine: `consistent` where our target, reading prompt and answer at once, has no better token "
        "anywhere than number formats can tell apart, or `differs`",
    )
    referee_place: int | None = column("", "the first new id of which that is not so; null where all are consistent")
    referee_behind: float | None = column(
        "", "how far below the best an answer's token is at most, by our target's logits", "max over places"
    )
    host: str | None = column("", "the machine that played it, where several play a plan; null elsewhere")
    prefill_shared: bool | None = metric(
        "",
        "the target's reading of the prompt was shared by all configurations that began with this text "
        "(`share_prefill`); its part of `prefill_s` is the seconds of that one reading",
    )
    kv_bytes: int | None = metric(
        "B", "keys, values and states of a prompt that was read elsewhere (`--from`); null where it was read here"
    )
    kv_transfer_ms: float | None = metric(
        "ms",
        "from asking for them until they were in the cache, without the time that reading the prompt took there, and "
        "without `queued_s`",
    )
    rollback_ms: float | None = metric(
        "ms",
        "of verify_ms: saving, restoring and replaying a target's recurrent states, and reading again by forwards of "
        "their own",
        "mean over rounds",
    )
    reread: int | None = metric(
        "tokens", "accepted tokens that the target's states read or replayed again after a rejection"
    )
    experts_per_round: float | None = metric(
        "",
        "different experts of a layer that the target's forward woke, for all rows of a round together; null for a "
        "target without experts",
        "mean over layers and rounds",
    )
    expert_share: float | None = metric("", "the same as a share of the layer's experts", "mean over rounds")
    experts_ms: float | None = metric(
        "ms",
        "of verify_ms: experts and their router, so that v(n) has a dense part and an expert part; measured on a CPU, "
        "null elsewhere",
        "mean over rounds",
    )
    target_tokens_per_s: float | None = column(
        "1/s",
        "decoding speed of the `target` run beside which this row was measured; another than in the row of `target` "
        "where `--resume` went on within a prompt, as `target` runs again there and its row stays",
    )
    rollback_way: str | None = column(
        "",
        "how recurrent states take tokens back, the fastest on this machine: `replay` (the recurrence alone), "
        "`every_row` (states kept behind each row), `reread` (the model reads again); null without states",
    )
    own_kernels: str | None = column(
        "", "what our kernels compute, Triton or C++: `blocks`, `attention`, `steps`, `products`; null for none"
    )
    forced: int | None = metric("tokens", "drafts that a grammar forced (docs/grammar.md); null without a grammar")
    grammar_ms: float | None = metric(
        "ms",
        "the masks of a grammar and its matcher, on the host: of draft_ms and of other_ms; null without a grammar",
        "mean over rounds",
    )
    joules_per_token: float | None = column(
        "J",
        "energy without that of the idle machine, of all texts of a batch together; null where it was not counted, for "
        "less than 0.2 s, and where the span of the counters differs from the measured time by more than 10 %",
        "(joules - idle_watts * span) / new_tokens",
    )
    idle_watts: float | None = column("W", "of the same parts, with the models loaded and nothing running")
    energy_of: str | None = column("", "what was counted, as `2 package, 1 gpu`; other processes on it included")
    prefix_hits: int | None = metric("tokens", "rows of the prompt from the prefix cache; null without one")
    prefill_saved_ms: float | None = metric(
        "ms", "estimate of what reading them would have taken", "prefix_hits * fastest prefill a row of the run so far"
    )
    reread_target: int | None = column("tokens", "of the last turn and its answer, read again; null in the first turn")
    reread_drafter: int | None = column("tokens", "the same of what drafts; null where that reads no prompt")
    prefill_chunks: int | None = metric("", "forwards that read a part of the prompt beside rounds; null for none")
    gap_p99_ms: float | None = column(
        "ms", "in a batch, between two rounds of a text: 99 % of those of all texts together took no longer"
    )
    preempted: int | None = metric("", "how often its rows were given up and read again; null without kv_memory")
    threads_blocked: float | None = column(
        "", "share of the time in which OpenMP threads blocked; null: not chosen here"
    )

    def to_json(self) -> str:
        """The object on one line, in ASCII."""
        return json.dumps(asdict(self), allow_nan=False)
