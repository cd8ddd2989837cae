"""Block and traversal verification: their exact law, their gain, and the faults that others shipped."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

from sampling.measure.judging import EXPECTED
from sampling.methods.verifiers import VERIFIERS
from sampling.proposal import Proposal
from sampling.verify import traversal
from sampling.verify.block import BlockVerifier, kept, weights
from sampling.verify.proposals import ProposalBatch
from sampling.verify.rejection import RejectionVerifier, residual
from sampling.verify.traversal import TraversalVerifier
from sampling.verify.verifier import Verifier
from tests.verdicts import many_verdicts
from utils.numbers.random_numbers import CounterRNG

SIZE, DRAFTS = 3, 3
Table = dict[tuple[int, ...], Tensor]
Law = dict[tuple[int, ...], float]
Rest = Callable[[Tensor, Tensor], Tensor]


def tables(seed: int, sharp: float = 1.5) -> tuple[Table, Table]:
    """p and q behind every text of up to DRAFTS tokens, in double precision."""
    rng = torch.Generator().manual_seed(seed)
    texts = [text for length in range(DRAFTS + 1) for text in product(range(SIZE), repeat=length)]

    def some() -> Table:
        return {text: (sharp * torch.randn(SIZE, generator=rng, dtype=torch.float64)).softmax(-1) for text in texts}

    return some(), some()


def chances(p: Table, q: Table, drafts: Sequence[int]) -> tuple[list[float], list[float]]:
    """w and h of each draft of a chain, from (w_0, h_0) = (1, 1) on."""
    texts = [tuple(drafts[:count]) for count in range(len(drafts) + 1)]
    p_x = torch.stack([p[text][draft] for text, draft in zip(texts, drafts, strict=False)])
    q_x = torch.stack([q[text][draft] for text, draft in zip(texts, drafts, strict=False)])
    w = weights(p_x, q_x)
    last = torch.arange(len(drafts)) == len(drafts) - 1
    h = kept(w, torch.stack([p[text] for text in texts[1:]]), torch.stack([q[text] for text in texts[1:]]), last)
    return [1.0, *w.tolist()], [1.0, *h.tolist()]


def ends(h: Sequence[float]) -> list[float]:
    """Chance that each number of drafts is kept, where the last coin that falls right decides."""
    left, found = 1.0, [0.0] * len(h)
    for count in reversed(range(len(h))):
        found[count], left = left * h[count], left * (1 - h[count])
    return found


def until_the_first_failure(h: Sequence[float]) -> list[float]:
    """The same where a coin that falls wrong ends the block."""
    reached = [1.0]
    for chance in h[1:]:
        reached.append(reached[-1] * chance)
    return [here - further for here, further in zip(reached, [*reached[1:], 0.0], strict=True)]


def law(p: Table, q: Table, stops: Callable[[Sequence[float]], list[float]] = ends, rest: Rest = residual) -> Law:
    """Chance of every text of DRAFTS + 1 tokens that comes out of one round, which plain decoding then fills up."""
    found: Law = Counter()
    for drafts in product(range(SIZE), repeat=DRAFTS):
        drawn = float(torch.stack([q[drafts[:at]][drafts[at]] for at in range(DRAFTS)]).prod())
        w, h = chances(p, q, drafts)
        for count, chance in enumerate(stops(h)):
            kept_ = drafts[:count]
            token = p[kept_] if count == DRAFTS else rest(w[count] * p[kept_], q[kept_])
            for text, mass in filled(p, kept_, token).items():
                found[text] += drawn * chance * mass
    return found


def filled(p: Table, text: tuple[int, ...], token: Tensor) -> Law:
    """The text with a token of this distribution behind it, and tokens of p up to DRAFTS + 1."""
    mass = {(*text, x): float(token[x]) for x in range(SIZE)}
    while len(next(iter(mass))) <= DRAFTS:
        mass = {(*one, x): chance * float(p[one][x]) for one, chance in mass.items() for x in range(SIZE)}
    return mass


def apart(p: Table, found: Law) -> float:
    """Total variation between a law and the target's own."""
    exact = filled(p, (), p[()])
    return 0.5 * sum(abs(exact[text] - found[text]) for text in exact)


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_block_has_the_targets_law(seed: int) -> None:
    p, q = tables(seed)
    assert apart(p, law(p, q)) < 1e-12


@pytest.mark.parametrize("seed", range(1, 6))
def test_faults_that_were_shipped_are_seen(seed: int) -> None:
    """RNG taken one by one, and the residual of one draft in place of the block's (vllm-ascend 7807, 11985)."""
    p, q = tables(seed)

    def of_one_draft(scaled: Tensor, q: Tensor) -> Tensor:
        return residual(scaled / scaled.sum(), q)

    assert apart(p, law(p, q, rest=of_one_draft)) > 1e-6
    assert apart(p, law(p, q, stops=until_the_first_failure)) > 1e-6


def accepted(p: Table, q: Table, of: Callable[[Sequence[int]], list[float]]) -> float:
    """Drafts accepted on average; of: the chance that each number of a chain's drafts is."""
    return sum(
        float(torch.stack([q[drafts[:at]][drafts[at]] for at in range(DRAFTS)]).prod()) * count * chance
        for drafts in product(range(SIZE), repeat=DRAFTS)
        for count, chance in enumerate(of(drafts))
    )


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_block_accepts_more_than_draft_by_draft(seed: int) -> None:
    p, q = tables(seed)

    def one_by_one(drafts: Sequence[int]) -> list[float]:
        texts = [tuple(drafts[:at]) for at in range(DRAFTS)]
        passes = [float((p[text][x] / q[text][x]).clamp(max=1.0)) for text, x in zip(texts, drafts, strict=True)]
        return until_the_first_failure([1.0, *passes])

    gain = accepted(p, q, lambda drafts: ends(chances(p, q, drafts)[1])) / accepted(p, q, one_by_one)
    assert 1.0 < gain < 1.5


def test_weights_by_hand() -> None:
    """0.5, then 1.5 makes up for it, then 4 is cut at 1, and 0 ends all."""
    ratio = torch.tensor([0.5, 1.5, 4.0, 0.25, 0.0, 9.0])
    assert weights(ratio * 0.1, torch.full((6,), 0.1)).tolist() == pytest.approx([0.5, 0.75, 1.0, 0.25, 0.0, 0.0])


def test_the_same_distributions_keep_the_block() -> None:
    p = torch.rand(4, 5, generator=torch.Generator().manual_seed(0)).softmax(-1)
    proposal = Proposal(torch.tensor([0, 3, 2]), None, p[:3])
    for seed in range(50):
        assert BlockVerifier().verify(proposal, p, CounterRNG(seed)).path == (0, 1, 2)


def drafted(p: Table, q: Table, rng: torch.Generator) -> tuple[Proposal, Tensor]:
    """A drawn chain, and the rows of p that judge it."""
    text: tuple[int, ...] = ()
    for _ in range(DRAFTS):
        text = (*text, int(torch.multinomial(q[text], 1, generator=rng)))
    rows = [text[:at] for at in range(DRAFTS + 1)]
    probs = torch.stack([q[row] for row in rows[:-1]]).float()
    return Proposal(torch.tensor(text), None, probs), torch.stack([p[row] for row in rows]).float()


def test_many_chains_are_judged_as_each_alone_and_by_the_exact_chances() -> None:
    p, q = tables(7)
    rng, count = torch.Generator().manual_seed(0), 4000
    proposals, rows = zip(*[drafted(p, q, rng) for _ in range(count)], strict=True)
    short = [
        Proposal(one.tokens[: place % 4], None, one.draft_probs[: place % 4]) for place, one in enumerate(proposals)
    ]
    cut = [row[: len(one) + 1] for one, row in zip(short, rows, strict=True)]
    for some, judged in ((proposals, rows), (short, cut)):
        chains = ProposalBatch(some, torch.device("cpu"))
        decision = BlockVerifier().decide(chains, torch.cat(judged), [CounterRNG(place) for place in range(count)])
        for place in range(0, count, 40):
            if len(some[place]):
                alone = BlockVerifier().verify(some[place], judged[place], CounterRNG(place))
                assert (len(alone.path) - 1, alone.token) == (int(decision.end[place]), int(decision.token[place]))
        if some is proposals:
            exact = accepted(p, q, lambda drafts: ends(chances(p, q, drafts)[1]))
            mean = float((decision.end + 1).float().mean())
            assert abs(mean - exact) < 5 * float((decision.end.float()).std()) / count**0.5


# A tree: root -> 0, 1; 0 -> 2; 1 -> 3; 2 -> 4.
PARENTS = (-1, -1, 0, 1, 2)
LENGTH = 2


def picked_tree(p: Table, q: Table, pick: Callable[[Tensor], int]) -> tuple[Proposal, Tensor]:
    """Siblings picked without replacement, and the rows of p that judge them."""
    texts, tokens, probs, left = [()], list[int](), list[Tensor](), dict[int, Tensor]()
    for parent in PARENTS:
        text = texts[parent + 1]
        here = left.get(parent, q[text])
        token = pick(here)
        tokens.append(token)
        probs.append(here)
        texts.append((*text, token))
        rest = here.scatter(0, torch.tensor([token]), 0.0)
        left[parent] = rest / rest.sum()
    return Proposal(torch.tensor(tokens), PARENTS, torch.stack(probs)), torch.stack([p[text] for text in texts])


def drawn_tree(p: Table, q: Table, rng: torch.Generator) -> tuple[Proposal, Tensor]:
    """One at random."""
    return picked_tree(p, q, lambda here: int(torch.multinomial(here, 1, generator=rng)))


def every_tree(p: Table, q: Table) -> Iterator[tuple[float, Proposal, Tensor]]:
    """All that can be drawn, each with its chance."""
    for tokens in product(range(SIZE), repeat=len(PARENTS)):
        picked = iter(tokens)
        proposal, rows = picked_tree(p, q, lambda here, picked=picked: next(picked))  # type: ignore[misc]
        chance = float(proposal.draft_probs.gather(1, proposal.tokens.unsqueeze(1)).prod())  # type: ignore[union-attr]
        if chance > 0.0:
            yield chance, proposal, rows


def path_to(proposal: Proposal, end: int) -> tuple[int, ...]:
    """The tokens from the root to a row; none for -1."""
    return () if end < 0 else (*path_to(proposal, proposal.parent_rows[end]), int(proposal.tokens[end]))


def tree_law(verifier: Verifier, seed: int, runs: int = 6000) -> tuple[float, float]:
    """Chi-square of the first two tokens over many trees, as a share of what noise allows; and accepted drafts."""
    p, q = tables(seed)
    rng = torch.Generator().manual_seed(seed)
    trees = list(every_tree(p, q))
    chances = torch.tensor([chance for chance, _, _ in trees])
    often = torch.multinomial(chances, runs, replacement=True, generator=rng).bincount(minlength=len(trees))
    counts: Counter[tuple[int, ...]] = Counter()
    drafts = 0
    for (_, proposal, rows), times in zip(trees, often.tolist(), strict=True):
        if not times:
            continue
        for end, token in torch.stack(many_verdicts(verifier, proposal, rows, times, rng), 1).tolist():
            path = path_to(proposal, end)
            drafts += len(path)
            text = (*path, token)
            if len(text) < LENGTH:
                text = (*text, int(torch.multinomial(p[text], 1, generator=rng)))
            counts[text[:LENGTH]] += 1
    exact = {(a, b): float(p[()][a] * p[(a,)][b]) for a in range(SIZE) for b in range(SIZE)}
    statistic = sum((counts[text] - mass * runs) ** 2 / (mass * runs) for text, mass in exact.items())
    return statistic / float(chi2.isf(1e-6, len(exact) - 1)), drafts / runs


def test_a_traversed_tree_has_the_targets_law_and_accepts_more_than_from_the_root() -> None:
    fit, most = tree_law(TraversalVerifier(), 3)
    usual, fewer = tree_law(RejectionVerifier(), 3)
    assert fit < 1.0 and usual < 1.0
    assert most > fewer


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("tree", [False, True], ids=["chain", "tree"])
def test_expected_acceptance_is_the_mean_over_coins(name: str, tree: bool) -> None:
    p, q = tables(3)
    proposal, rows = (drawn_tree if tree else drafted)(p, q, torch.Generator().manual_seed(1))
    ends, _ = many_verdicts(VERIFIERS[name].build(None, {}), proposal, rows, 2000, torch.Generator().manual_seed(0))
    accepted = torch.tensor([float(len(path_to(proposal, end))) for end in ends.tolist()])
    assert abs(float(accepted.mean()) - EXPECTED[name](proposal, rows)) < 5 * float(accepted.std()) / 2000**0.5 + 1e-6


def test_of_the_same_drafts_more_comes_through_in_the_mean() -> None:
    """Not of each proposal, but over many; on a chain both of the new strategies are the same."""
    p, q = tables(3)
    rng = torch.Generator().manual_seed(0)
    for made in (drafted, drawn_tree):
        some = [made(p, q, rng) for _ in range(300)]
        root, block, leaves = (sum(expected(*one) for one in some) for expected in EXPECTED.values())
        assert leaves > 1.02 * root
        assert block == pytest.approx(leaves if made is drafted else root)


def test_traversal_faults_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parent that keeps its chance, or its distribution, when a child has gone."""
    honest = traversal.without
    monkeypatch.setattr(traversal, "without", lambda w, p, q: (w, honest(w, p, q)[1]))
    assert tree_law(TraversalVerifier(), 3)[0] > 1.0
    monkeypatch.setattr(traversal, "without", lambda w, p, q: (honest(w, p, q)[0], p))
    assert tree_law(TraversalVerifier(), 3)[0] > 1.0


def test_on_a_chain_traversal_is_block_verification() -> None:
    p, q = tables(2)
    rng = torch.Generator().manual_seed(0)
    for seed in range(100):
        proposal, rows = drafted(p, q, rng)
        assert BlockVerifier().verify(proposal, rows, CounterRNG(seed)) == TraversalVerifier().verify(
            proposal, rows, CounterRNG(seed)
        )
    for _ in range(30):
        proposal, rows = drafted(p, q, rng)
        tree = Proposal(proposal.tokens, proposal.parent_rows, proposal.draft_probs)
        as_tree = many_verdicts(TraversalVerifier(), tree, rows, 100, torch.Generator().manual_seed(1))
        as_chain = many_verdicts(BlockVerifier(), proposal, rows, 100, torch.Generator().manual_seed(1))
        # A coin a draft, and the last that falls right decides: the first from the leaf.
        assert torch.equal(as_tree[0], as_chain[0]) and torch.equal(as_tree[1], as_chain[1])


def test_a_token_that_the_target_never_says_is_never_kept() -> None:
    p = torch.tensor([[0.0, 0.5, 0.5], [0.9, 0.1, 0.0], [1.0, 0.0, 0.0]])
    q = torch.full((2, 3), 1 / 3)
    for seed in range(200):
        verdict = BlockVerifier().verify(Proposal(torch.tensor([0, 0]), None, q), p, CounterRNG(seed))
        assert verdict.path == () and verdict.token != 0
