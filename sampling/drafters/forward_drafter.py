"""Step-by-step drafting: the common base of all drafters with a model, for chains and trees."""

from abc import abstractmethod
from collections import abc
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from egag.length_rule import FixedGamma, LengthRule
from sampling.drafter import Drafter
from sampling.drafters.best_first import BestFirst, best_first
from sampling.drafters.captured import DraftingPlan, captured_drafts
from sampling.drafters.chains import ChainSteps, draft_chains, is_counted
from sampling.drafters.draft_tree import TreeShape
from sampling.drafters.growth import DraftGrowth
from sampling.forward.graphs.further import FurtherForwards
from sampling.forward.requests import StepGenerator
from sampling.heads.config import HeadConfig
from sampling.processors.with_text import TextChanges
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from sampling.verify.graphed import is_plain
from utils.errors import UserError
from utils.parameter import Values


class ForwardDrafter(Drafter):
    """Draws a chain from its own distribution, or proposes a tree of continuations.

    A chain is drawn token by token from the processed distribution q, up to the rule's length. With greedy decoding q
    is a point mass. The nodes of a tree are the most probable continuations, as point masses, or they are drawn. Both
    are lossless under sampling.
    """

    keeps_rows = True
    shape: TreeShape | BestFirst | None = None
    chains_in_batches = False
    """Whether texts that share rounds get chains, whatever the shape: trees are grown and judged text by text."""
    draft_ids: Tensor | None = None
    """All tokens that it may draft, `[D]`, ascending; None: any."""

    @cached_property
    def _drafts_below(self) -> int:
        """All of `draft_ids` are below this one."""
        return 0 if self.draft_ids is None else int(self.draft_ids.max()) + 1

    def __init_subclass__(cls, **options: Any) -> None:
        """See `Drafter`: a class that says anew how one sequence is fed says so for many, too."""
        super().__init_subclass__(**options)
        if {"root", "feed", "room"} & vars(cls).keys() and "steps_together" not in vars(cls):
            cls.steps_together = ForwardDrafter.steps_together  # type: ignore[method-assign]

    @classmethod
    def shape_of(cls, config: HeadConfig, values: Values) -> TreeShape | BestFirst | None:
        """The tree shape that the settings give for a head.

        Raises `UserError` for a shape that this drafter does not support.
        """
        if values["draft_tree"] != "best_first":
            return TreeShape.of(config, values)
        if cls.ahead is ForwardDrafter.ahead:
            raise UserError(
                f"draft_tree best_first given for {config.method}, which drafts each place after the one before; "
                "expected chain, static, drawn or dynamic, or a drafter that looks at all places in one pass: medusa, "
                "parallel_eagle or dspark"
            )
        return BestFirst(values["tree_tokens"])

    @abstractmethod
    def room(self, seq: Sequence) -> int:
        """The largest depth that the drafter can draft here, in tokens; 0 = none."""

    @abstractmethod
    def root(self, seq: Sequence) -> StepGenerator[Tensor]:
        """Raw logits `[1, V]` of the first draft, after all of `seq.tokens`."""

    @abstractmethod
    def feed(self, seq: Sequence, tokens: Tensor, parents: Tensor | None = None) -> StepGenerator[Tensor]:
        """Raw logits `[k, V]` after k more drafts `[k]`; drafts are numbered in the order in which they are fed.

        parents: `[k]`, the number of each draft's parent, -1 = the text; all k have the same depth. None means a single
        draft after the last one that was fed.
        """

    def along(self, seq: Sequence, count: int) -> StepGenerator[Tensor]:
        """Raw logits `[count, V]` behind the last tokens of the text, which `root` may follow; `[0, V]`: unknown.

        It is known of drafters whose draft of a token is a function of the text alone.
        """
        return torch.empty(0, seq.runner.vocab_size, device=seq.device)
        yield

    def further(self, seq: Sequence, count: int) -> FurtherForwards | None:
        """`feed` of at most so many drafts in forwards whose shapes and addresses are known; None where there are none.

        It is asked for behind `root`.
        """
        return None

    def acceptance(self, seq: Sequence) -> Tensor | None:
        """The predicted acceptance `[k]` of a draft from each row of the last logits `[k, V]`.

        It is None for a drafter without a head that predicts acceptance.
        """
        return None

    def ahead(self, seq: Sequence, depth: int) -> StepGenerator[Tensor]:
        """Raw logits `[depth, V]` of the next positions, independent of the drafts between.

        A drafter that computes them in one forward overrides this method. It can then draft best-first trees.
        """
        raise NotImplementedError(f"{type(self).__name__} drafts place by place")

    def propose(self, seq: Sequence, gamma: LengthRule, limit: int) -> StepGenerator[Proposal]:
        limit = min(limit, self.room(seq))
        if limit <= 0 or gamma.gamma == 0:
            return Proposal.empty(seq.device)
        common, shape = seq.runner.vocab_size, self.shape_for(seq)
        if isinstance(shape, BestFirst):
            ahead = yield from self.ahead(seq, min(limit, gamma.gamma, shape.tokens))
            return best_first(_Drafted(seq).ahead(ahead[:, :common]), shape.tokens, gamma)
        drafted = _Drafted(seq)

        def feed(tokens: Tensor, parents: Tensor | None) -> StepGenerator[Tensor]:
            """`feed` over the tokens that the pair has in common, changed by the text."""
            return drafted.behind(tokens, parents, (yield from self.feed(seq, tokens, parents))[:, :common])

        logits = drafted.root((yield from self.root(seq))[:, :common])
        if (proposal := self._captured(seq, gamma, limit, logits)) is not None:
            return proposal
        growth = DraftGrowth(
            gamma,
            limit,
            seq.processor,
            seq.rng,
            seq.device,
            lambda: self.acceptance(seq),
            lambda one: drafted.over(one),
            self._draft_ids(seq),
        )
        return (yield from growth.proposal(shape, logits, feed))

    def _draft_ids(self, seq: Sequence) -> Tensor | None:
        """`draft_ids` as far as the pair has them in common; None where the text decides which have a chance."""
        ids, common = self.draft_ids, seq.runner.vocab_size
        if ids is None or seq.changes is not None:
            return None
        return ids if self._drafts_below <= common else ids[ids < common]

    def shape_for(self, seq: Sequence) -> TreeShape | BestFirst | None:
        """The shape of the drafts of a sequence's next round; None: a chain."""
        return None if self.chains_in_batches and seq.live > 1 else self.shape

    def steps_together(self, seqs: abc.Sequence[Sequence]) -> ChainSteps | None:
        """The forwards of the chains of these sequences, all of which have room; None where each is fed by itself."""
        return None

    def mark(self, seq: Sequence) -> abc.Callable[[], None]:
        """What takes a sequence's state back to what it is now, as long as no more of its text is known."""
        return lambda: None

    def propose_together(self, seqs: abc.Sequence[Sequence]) -> abc.Sequence[Proposal | None]:
        """Chains whose lengths follow from the rule's gamma alone are drawn side by side."""
        found: list[Proposal | None] = [None] * len(seqs)
        if len(seqs) < 2 or self.shape is not None:
            return found
        counts = {
            number: max(0, min(seq.room, self.room(seq), seq.rule.gamma))
            for number, seq in enumerate(seqs)
            if seq.changes is None and is_counted(seq.rule)
        }
        drafting = [number for number, count in counts.items() if count]
        mine = [seqs[number] for number in drafting]
        proposals = self._chains(mine, [counts[number] for number in drafting]) if drafting else ()
        if proposals is None:
            return found
        for number, count in counts.items():
            if not count:
                found[number] = Proposal.empty(seqs[number].device)
        for number, proposal in zip(drafting, proposals, strict=True):
            found[number] = proposal
        return found

    def _chains(self, seqs: abc.Sequence[Sequence], counts: abc.Sequence[int]) -> abc.Sequence[Proposal] | None:
        """Chains of so many drafts, drawn side by side; None where each sequence is fed by itself."""
        back = [self.mark(seq) for seq in seqs]
        try:
            steps = self.steps_together(seqs)
            return None if steps is None else draft_chains(steps, seqs, counts, self._draft_ids(seqs[0]))
        except Exception:
            for forget in back:
                forget()
            raise

    def _captured(self, seq: Sequence, gamma: LengthRule, limit: int, logits: Tensor) -> Proposal | None:
        """The drafts behind logits `[1, V]` as one captured function; None where that cannot be had."""
        shape, depth = self.shape_for(seq), gamma.gamma
        assert not isinstance(shape, BestFirst)
        if shape is not None:
            depth = min(depth, shape.tokens)
        known = type(gamma) is FixedGamma and seq.changes is None and is_plain(seq.processor)
        if not known or not 2 <= depth <= limit or seq.live > 1 or logits.device != seq.device:
            return None
        forwards = self.further(seq, (depth - 1) * (1 if shape is None else shape.width))
        if forwards is None:
            return None
        plan = DraftingPlan(shape, depth, seq.runner.vocab_size, seq.processor, self._draft_ids(seq))
        return captured_drafts(plan, logits, forwards, seq.rng)


class _Drafted:
    """The drafts of a round so far, by whose text a drafter's logits are changed where the target's are."""

    def __init__(self, seq: Sequence) -> None:
        self._seq, self._changes = seq, seq.changes

    def root(self, logits: Tensor) -> Tensor:
        """Logits `[m, V]` behind the text, changed; a round begins with them."""
        if self._changes is None:
            return logits
        self._tokens = torch.empty(0, dtype=torch.long, device=self._seq.device)
        self._paths = torch.zeros(0, 0, dtype=torch.bool, device=self._seq.device)
        return self._changed(self._changes, self._paths.new_zeros(len(logits), 0), logits)

    def ahead(self, logits: Tensor) -> Tensor:
        """Logits `[m, V]` of the next positions, changed by the text; a grammar is known at the first one alone."""
        if self._seq.grammar is None:
            return self.root(logits)
        return torch.cat([self.root(logits[:1]).to(logits.dtype), logits[1:]])

    def over(self, token: Tensor) -> bool:
        """Whether a draft `[1]` ends the text under a grammar, which nothing may follow; it is read on the host."""
        grammar = None if self._changes is None else self._changes.grammar
        return grammar is not None and int(token) in self._seq.stop

    def behind(self, tokens: Tensor, parents: Tensor | None, logits: Tensor) -> Tensor:
        """Logits `[k, V]` behind k more drafts, changed; see `ForwardDrafter.feed`."""
        if self._changes is None:
            return logits
        before, count = len(self._tokens), len(tokens)
        above = torch.full((count,), before - 1) if parents is None else parents
        none = self._paths.new_zeros(1, before)
        lines = torch.cat([none, self._paths]).index_select(0, above.to(self._seq.device) + 1)
        paths = torch.cat([lines, torch.eye(count, dtype=torch.bool, device=lines.device)], dim=1)
        self._paths = torch.cat([F.pad(self._paths, (0, count)), paths])
        self._tokens = torch.cat([self._tokens, tokens.to(self._seq.device)])
        return self._changed(self._changes, paths, logits)

    def _changed(self, changes: TextChanges, paths: Tensor, logits: Tensor) -> Tensor:
        return changes.of_drafts(self._seq.tokens, self._tokens, paths, logits).to(logits.device)
