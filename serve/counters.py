"""What the server has done since it began, as Prometheus reads it, under the names of vLLM's metrics."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from utils.events import Prefilled, Round

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
_REASONS = ("stop", "length", "abort", "error")


@dataclass
class Counters:
    """Written by the driver's thread, read by any."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    rounds: int = 0
    drafting_rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    accepted_at: list[int] = field(default_factory=list)
    finished: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(_REASONS, 0)))

    def began(self, prefilled: Prefilled) -> None:
        """A prompt was read."""
        self.prompt_tokens += prefilled.prompt_tokens

    def add(self, round: Round) -> None:
        """Count a round of one text. Rounds without drafts are none of vLLM's `num_drafts`."""
        self.generation_tokens += len(round.emitted)
        self.rounds += 1
        self.drafting_rounds += bool(round.drafts)
        self.drafted += len(round.drafts)
        self.accepted += round.accepted
        self.accepted_at += [0] * (round.depth - len(self.accepted_at))
        for place in range(round.accepted):
            self.accepted_at[place] += 1

    def ended(self, reason: str) -> None:
        """A text is over: `stop`, `length`, `abort` where the client has left, or `error`."""
        self.finished[reason] += 1

    def page(self, model: str, running: int, waiting: int) -> str:
        """The text of `/metrics`."""
        return "".join(self._families({"model_name": model, "engine": "0"}, running, waiting))

    def _families(self, labels: Mapping[str, str], running: int, waiting: int) -> Iterator[str]:
        yield _family("vllm:num_requests_running", "gauge", "Texts under way.", [(labels, running)])
        yield _family("vllm:num_requests_waiting", "gauge", "Texts without a place.", [(labels, waiting)])
        yield _family("vllm:prompt_tokens_total", "counter", "Tokens of prompts.", [(labels, self.prompt_tokens)])
        yield _family("vllm:generation_tokens_total", "counter", "Tokens written.", [(labels, self.generation_tokens)])
        reasons = [({**labels, "finished_reason": reason}, count) for reason, count in self.finished.items()]
        yield _family("vllm:request_success_total", "counter", "Texts that are over, by why.", reasons)
        drafts = "vllm:spec_decode_num"
        yield _family(f"{drafts}_drafts_total", "counter", "Rounds with drafts.", [(labels, self.drafting_rounds)])
        yield _family(f"{drafts}_draft_tokens_total", "counter", "Drafts.", [(labels, self.drafted)])
        yield _family(f"{drafts}_accepted_tokens_total", "counter", "Drafts accepted.", [(labels, self.accepted)])
        places = [({**labels, "position": str(place)}, count) for place, count in enumerate([*self.accepted_at])]
        yield _family(f"{drafts}_accepted_tokens_per_pos_total", "counter", "The same by position.", places)
        yield _family("workbench:rounds_total", "counter", "Rounds of all texts.", [(labels, self.rounds)])


def _family(name: str, kind: str, help: str, samples: Sequence[tuple[Mapping[str, str], int]]) -> str:
    lines = [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        lines.append(f"{name}{{{shown}}} {value}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
