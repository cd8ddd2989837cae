"""What the server has done since it began, as Prometheus reads it, under the names of vLLM's metrics."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from serve.histograms import REQUEST_S, TOKEN_S, TOKENS, TTFT_S, Histogram, Labels, Sample, family
from serve.jobs import TextJob
from serve.page.recent import RecentCounts
from utils.events import Prefilled, Round

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
_REASONS = ("stop", "length", "abort", "error")

# The histograms: vLLM's name, its bounds, and what is counted.
_HISTOGRAMS = {
    "time_to_first_token_seconds": (TTFT_S, "From the arrival of a text to its first tokens."),
    "inter_token_latency_seconds": (TOKEN_S, "Between two rounds of a text, whatever they brought."),
    "request_time_per_output_token_seconds": (TOKEN_S, "Of a whole text, a token behind its first ones."),
    "e2e_request_latency_seconds": (REQUEST_S, "From the arrival of a text to its end."),
    "request_queue_time_seconds": (REQUEST_S, "From the arrival of a text to its prefill."),
    "request_prefill_time_seconds": (REQUEST_S, "Prefill of a prompt, rounds of others beside it included."),
    "request_decode_time_seconds": (REQUEST_S, "From the first tokens of a text to its end."),
    "request_prompt_tokens": (TOKENS, "Tokens of a prompt."),
    "request_generation_tokens": (TOKENS, "Tokens of an answer."),
}


@dataclass
class Counters:
    """Written by the driver's thread, read by any."""

    prompt_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    preemptions: int = 0
    generation_tokens: int = 0
    rounds: int = 0
    drafting_rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    accepted_at: list[int] = field(default_factory=list)
    finished: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(_REASONS, 0)))
    histograms: dict[str, Histogram] = field(
        default_factory=lambda: {name: Histogram(bounds) for name, (bounds, _) in _HISTOGRAMS.items()}
    )

    recent: RecentCounts = field(default_factory=RecentCounts)

    def began(self, prefilled: Prefilled, queued_s: float) -> None:
        """A prompt was read, so long after it came."""
        self.prompt_tokens += prefilled.prompt_tokens
        if prefilled.prefix_hits is not None:
            self.prefix_queries += prefilled.prompt_tokens
            self.prefix_hits += prefilled.prefix_hits
        self.histograms["request_queue_time_seconds"].add(queued_s)
        self.histograms["request_prefill_time_seconds"].add(prefilled.prefill_s + prefilled.waited_s)

    def told(self, job: TextJob, now_s: float) -> None:
        """Tokens of a text are there."""
        if job.first_s is None:
            job.first_s = now_s
            self.histograms["time_to_first_token_seconds"].add(now_s - job.arrived_s)
        elif job.last_s is not None:
            self.histograms["inter_token_latency_seconds"].add(now_s - job.last_s)
        job.last_s = now_s

    def add(self, round: Round) -> None:
        """Count a round of one text. Rounds without drafts are none of vLLM's `num_drafts`."""
        self.generation_tokens += len(round.emitted)
        self.rounds += 1
        self.drafting_rounds += bool(round.drafts)
        self.drafted += len(round.drafts)
        self.accepted += round.accepted
        self.recent.add(len(round.emitted), len(round.drafts), round.accepted)
        self.accepted_at += [0] * (round.depth - len(self.accepted_at))
        for place in range(round.accepted):
            self.accepted_at[place] += 1

    def ended(self, reason: str, job: TextJob) -> None:
        """A text is over: `stop`, `length`, `abort` where the client has left, or `error`."""
        self.finished[reason] += 1
        if reason not in ("stop", "length") or job.first_s is None or job.last_s is None:
            return
        written_s, new = job.last_s - job.first_s, job.metrics.new_tokens
        self.histograms["e2e_request_latency_seconds"].add(job.last_s - job.arrived_s)
        self.histograms["request_decode_time_seconds"].add(written_s)
        self.histograms["request_prompt_tokens"].add(job.metrics.prompt_tokens)
        self.histograms["request_generation_tokens"].add(new)
        if new > 1:
            self.histograms["request_time_per_output_token_seconds"].add(written_s / (new - 1))

    def page(self, model: str, running: int, waiting: int) -> str:
        """The text of `/metrics`."""
        return "".join(self._families({"model_name": model, "engine": "0"}, running, waiting))

    def _families(self, labels: Labels, running: int, waiting: int) -> Iterator[str]:
        def counted(name: str, kind: str, help: str, value: int) -> str:
            return family(name, kind, help, [("", labels, value)])

        yield counted("vllm:num_requests_running", "gauge", "Texts under way.", running)
        yield counted("vllm:num_requests_waiting", "gauge", "Texts without a place.", waiting)
        yield counted("vllm:prompt_tokens_total", "counter", "Tokens of prompts.", self.prompt_tokens)
        yield counted("vllm:generation_tokens_total", "counter", "Tokens written.", self.generation_tokens)
        prefix = "vllm:prefix_cache"
        yield counted(f"{prefix}_queries_total", "counter", "Tokens of prompts looked up.", self.prefix_queries)
        yield counted(f"{prefix}_hits_total", "counter", "Of these, not read as rows were kept.", self.prefix_hits)
        yield counted("vllm:num_preemptions_total", "counter", "Texts put back for want of memory.", self.preemptions)
        reasons = [("", {**labels, "finished_reason": reason}, count) for reason, count in self.finished.items()]
        yield family("vllm:request_success_total", "counter", "Texts that are over, by why.", reasons)
        drafts = "vllm:spec_decode_num"
        yield counted(f"{drafts}_drafts_total", "counter", "Rounds with drafts.", self.drafting_rounds)
        yield counted(f"{drafts}_draft_tokens_total", "counter", "Drafts.", self.drafted)
        yield counted(f"{drafts}_accepted_tokens_total", "counter", "Drafts accepted.", self.accepted)
        places: Sequence[Sample] = [
            ("", {**labels, "position": str(place)}, count) for place, count in enumerate([*self.accepted_at])
        ]
        yield family(f"{drafts}_accepted_tokens_per_pos_total", "counter", "The same by position.", places)
        for name, (_, help) in _HISTOGRAMS.items():
            yield family(f"vllm:{name}", "histogram", help, [*self.histograms[name].samples(labels)])
        yield counted("workbench:rounds_total", "counter", "Rounds of all texts.", self.rounds)
