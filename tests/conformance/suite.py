"""What every drafter x controller x lossless verifier must do, as functions that raise AssertionError.

The tests call them on what the tables hold; the mutation tests call them on planted bugs and expect the
error. Distributions are tested by chi-square at `FALSE_ALARM` a test.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from scipy.special import chdtri

from egag.choosing.drafter_chooser import DrafterChooser
from egag.length_rule import FixedGamma, LengthRule
from sampling.batch import Batch, decode_many
from sampling.drafter import Drafter, proposal_of
from sampling.forward.runner import prefill
from sampling.forward.tree import depths
from sampling.loop import decode
from sampling.measure.metrics import RunMetrics
from sampling.pair.pair import Pair
from sampling.proof.memo import memorised
from sampling.proposal import Proposal
from sampling.scheduling.live_text import Request
from sampling.sequence import Sequence
from sampling.verify.verifier import Verifier
from tests.conformance.toy import PROMPT
from tests.sequences import sequence
from tests.verdicts import many_verdicts
from utils.events import Event, Finished, Round
from utils.logits_processor import GreedyProcessor, LogitsProcessor

Prompt = tuple[int, ...]
FALSE_ALARM = 1e-6
RUNS = 1000
# For rules of drafters whose forwards are costly: enough to see that a rule drops what was drawn (test_matrix.py).
FEW_RUNS = 600
AT_ONCE = 64


@dataclass
class Case:
    """One combination under test, built afresh for a pair."""

    drafter: Callable[[Pair], Drafter]
    gamma: Callable[[], LengthRule]
    verifier: Callable[[], Verifier]


def run(
    case: Case,
    pair: Pair,
    processor: LogitsProcessor,
    length: int,
    seed: int = 0,
    prompt: Prompt = PROMPT,
    drafter: Drafter | None = None,
) -> list[Event]:
    """All events of one run."""
    return list(
        decode(
            pair.target,
            drafter or case.drafter(pair),
            case.gamma(),
            case.verifier(),
            processor,
            prompt,
            max_new_tokens=length,
            stop=pair.stop,
            seed=seed,
        )
    )


def output(events: list[Event]) -> list[int]:
    """The new ids of a run."""
    return [token for event in events if isinstance(event, Round) for token in event.emitted]


def greedy_reference(pair: Pair, length: int, prompt: Prompt = PROMPT) -> list[int]:
    """AR by hand: argmax of the uncached forward, cut at a stop token or the window."""
    runner = pair.recomputing().target
    start = runner.read(prompt).tokens
    tokens = list(start)
    while len(tokens) < min(len(start) + length, runner.window):
        runner.crop(0)
        tokens.append(int(runner.forward(tokens, rows=1).logits[0].argmax()))
        if tokens[-1] in pair.stop:
            break
    return tokens[len(start) :]


def check_greedy(case: Case, pair: Pair, length: int = 20, prompts: int = 4) -> None:
    """Greedy output is AR's on a few prompts, token for token; the events add up."""
    for prompt in (PROMPT, PROMPT[::-1], PROMPT[1:], PROMPT[2:])[:prompts]:
        _check_greedy_on(prompt, case, pair, length)


def _check_greedy_on(prompt: Prompt, case: Case, pair: Pair, length: int) -> None:
    events = run(case, pair, GreedyProcessor(), length, prompt=prompt)
    expected = greedy_reference(pair, length, prompt)
    assert output(events) == expected, f"{output(events)} is not AR's {expected}"
    assert isinstance(events[-1], Finished)
    assert events[-1].new_tokens == len(expected) <= length
    check_account(events, prompt)


def check_account(events: list[Event], prompt: Prompt) -> None:
    """What a run is said to have drafted, judged and kept adds up, on chains and on trees.

    A position is judged once and accepted at most once, whatever hangs there; rounds follow each other in the text.
    """
    account, position = RunMetrics(), len(prompt)
    for round in events[1:-1]:
        assert isinstance(round, Round)
        account.add(round)
        depth = depths(Proposal(torch.tensor(round.drafts), round.parents).parent_rows)
        assert [depth[row] for row in round.path] == list(range(1, round.accepted + 1)), f"no path: {round}"
        assert round.accepted <= round.tested <= min(round.accepted + 1, max(depth, default=0))
        assert len(round.q) == len(round.p) == len(round.drafts)
        assert round.position == position, f"{round.position} is not the place {position} of the next token"
        position += len(round.emitted)
    assert sum(account.tested_at) == account.tested and sum(account.accepted_at) == account.accepted
    assert all(a <= t for a, t in zip(account.accepted_at, account.tested_at, strict=False))


def check_distribution(
    case: Case, pair: Pair, processor: LogitsProcessor, length: int = 2, runs: int = RUNS, prompt: Prompt = PROMPT
) -> None:
    """The joint distribution of the first `length` tokens over many runs is the target's own."""
    exact = exact_distribution(pair, processor, length, prompt)
    drafter = case.drafter(pair)
    outputs = (output(run(case, pair, processor, length, seed, prompt, drafter)) for seed in range(runs))
    check_counts(Counter(map(tuple, outputs)), exact)


def check_law(
    case: Case, pair: Pair, processor: LogitsProcessor, length: int = 2, runs: int = RUNS, prompt: Prompt = PROMPT
) -> None:
    """The same of runs that share their rounds; rows of both models are computed once."""
    exact = exact_distribution(pair, processor, length, prompt)
    ends = run_many(case, pair, processor, length, runs, prompt)
    check_counts(Counter(tuple(seq.tokens[seq.prompt_length :]) for seq, _ in ends), exact)


def run_many(
    case: Case, pair: Pair, processor: LogitsProcessor, length: int, runs: int, prompt: Prompt = PROMPT
) -> Iterator[tuple[Sequence, Finished]]:
    """Whole texts of the first seeds, as they come to their ends; rows of both models are computed once."""
    memo, target = memorised(pair)
    batch = Batch(target, case.drafter(memo), case.gamma, case.verifier(), AT_ONCE)
    requests = (Request([*prompt], processor, length, seed, pair.stop) for seed in range(runs))
    return ((live.seq, event) for live, event in decode_many(batch, requests) if isinstance(event, Finished))


def check_counts(counts: Counter[tuple[int, ...]], exact: dict[tuple[int, ...], float]) -> None:
    """Outputs of many runs follow a distribution."""
    statistic, freedom = _chi_square(counts, exact, counts.total())
    limit = float(chdtri(freedom, FALSE_ALARM))
    assert statistic < limit, f"chi-square {statistic:.1f} is over {limit:.1f} at {freedom} degrees of freedom"


def check_sibling_distribution(verifier: Verifier, runs: int = 20_000) -> None:
    """One node with two children drawn without replacement from a q unlike p: the first emitted token follows p.

    No model runs, so that the draws are many enough to see what only a second rejection shows.
    """
    p = torch.tensor([[0.05, 0.15, 0.30, 0.50]]).expand(3, 4)
    q = torch.tensor([0.60, 0.25, 0.10, 0.05])
    rest = q.expand(4, 4) * (1.0 - torch.eye(4))
    rest = rest / rest.sum(1, keepdim=True)
    rng = torch.Generator().manual_seed(0)
    drawn = torch.multinomial((q.unsqueeze(1) * rest).flatten(), runs, replacement=True, generator=rng)
    counts: Counter[tuple[int, ...]] = Counter()
    for siblings, times in Counter(drawn.tolist()).items():
        first, second = divmod(siblings, 4)
        proposal = Proposal(torch.tensor([first, second]), (-1, -1), torch.stack([q, rest[first]]))
        end, token = many_verdicts(verifier, proposal, p, times, rng)
        counts.update((emitted,) for emitted in torch.where(end < 0, token, proposal.tokens[end]).tolist())
    statistic, freedom = _chi_square(counts, {(token,): float(p[0, token]) for token in range(4)}, runs)
    assert statistic < float(chdtri(freedom, FALSE_ALARM)), f"chi-square {statistic:.1f} on siblings"


def exact_distribution(
    pair: Pair, processor: LogitsProcessor, length: int, prompt: Prompt = PROMPT
) -> dict[tuple[int, ...], float]:
    """Probability of every continuation of `length` tokens, by enumeration with the uncached forward."""
    runner = pair.recomputing().target
    start = runner.read(prompt).tokens
    exact: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        shorter, exact = exact, {}
        for path, mass in shorter.items():
            runner.crop(0)
            p = processor(runner.forward([*start, *path], rows=1).logits)[0].tolist()
            exact.update({(*path, token): mass * chance for token, chance in enumerate(p)})
    return exact


def _chi_square(counts: Counter[tuple[int, ...]], exact: dict[tuple[int, ...], float], runs: int) -> tuple[float, int]:
    """Pearson's statistic with cells of fewer than 5 expected pooled; an impossible outcome is infinite."""
    statistic, cells, rest_seen, rest_expected = 0.0, 0, 0, 0.0
    for path, mass in exact.items():
        if mass == 0.0 and counts[path]:
            return float("inf"), 1
        if mass * runs < 5:
            rest_seen, rest_expected = rest_seen + counts[path], rest_expected + mass * runs
        else:
            statistic += (counts[path] - mass * runs) ** 2 / (mass * runs)
            cells += 1
    if rest_expected >= 1:
        statistic, cells = statistic + (rest_seen - rest_expected) ** 2 / rest_expected, cells + 1
    return statistic, max(1, cells - 1)


def check_redraft(case: Case, pair: Pair, length: int = 18, honest: Case | None = None) -> None:
    """Every proposal equals that of a drafter that recomputes everything from the same tokens.

    Greedy, so that a proposal is a function of the tokens; the rule is stateless here (fixed gamma), or what chooses
    between drafters, which then hears the same rounds.
    `honest` builds that drafter where the case under test is broken on purpose.
    """
    fresh = (honest or case).drafter(pair.recomputing())
    rounds = [event for event in run(case, pair, GreedyProcessor(), length) if isinstance(event, Round)]
    target = pair.recomputing().target
    reading = target.read(PROMPT)
    start, tokens = len(reading.tokens), list(reading.tokens)
    chooser = case.gamma()
    chooser.begin()
    for round in rounds:
        rule = chooser if isinstance(chooser, DrafterChooser) else FixedGamma(round.gamma)
        seq = sequence(tokens, target, prompt_length=start, encoder_ids=reading.encoder_ids)
        seq.hidden = prefill(target, tokens[:-1], fresh.needs_hidden)
        fresh.begin(seq)
        again = proposal_of(fresh.propose(seq, rule, length - (len(tokens) - start) - 1))
        assert again.tokens.tolist() == list(round.drafts), f"round {round.number} drafted {round.drafts}"
        tokens.extend(round.emitted)
        chooser.update(round)


def check_self_draft(case: Case, pair: Pair, processor: LogitsProcessor) -> None:
    """A drafter that is the target's twin is accepted whole, in every round."""
    for event in run(case, pair, processor, 24):
        if isinstance(event, Round):
            assert event.accepted == event.tested == len(event.drafts), f"round {event.number}: {event}"
            assert event.rejected is None
