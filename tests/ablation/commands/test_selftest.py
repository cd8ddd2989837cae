from collections import abc
from dataclasses import replace

import pytest
import torch

from egag.entropy import entropy
from egag.length_rule import LengthRule
from sampling.drafters.model import ModelDrafter
from sampling.forward.kernels import int8
from sampling.forward.kernels.formats import FORMATS
from sampling.forward.models.lean import from_transformers
from sampling.forward.runner import ModelRunner
from sampling.measure.comparison import Comparison
from sampling.measure.divergence import Divergence
from sampling.pair.pair import Pair
from sampling.proof import rows, selftest
from sampling.proof.rows import compare_rows, faulty
from sampling.proof.selftest import Check, MethodReport, Selftest
from sampling.proposal import Proposal
from sampling.sequence import Sequence
from sampling.verify import verify
from sampling.verify.proposals import ProposalBatch
from sampling.verify.rejection import RejectionVerifier
from sampling.verify.verdict import DeviceVerdict
from sampling.verify.verifier import sample_each
from tests.ablation.conftest import Invoke, objects
from tests.refusals import refused
from tests.tiny import llama, random_model
from utils.errors import UserError
from utils.logits_processor import sample
from utils.numbers.random_numbers import RNG

DRAWS = 400


def checks(pair: Pair, method: str = "speculative") -> dict[str, str]:
    report = Selftest(pair, [method], draws=DRAWS).report(method)
    return {check.name: check.verdict for check in report.checks}


def uncropped(drafter: ModelDrafter, seq: Sequence, gamma: LengthRule, limit: int) -> Proposal:
    """`ModelDrafter.propose` as it should not be: rows of rejected drafts stay in the cache."""
    if limit <= 0:
        return Proposal.empty(seq.device)
    slot = seq.drafter_state[drafter]
    logits = slot.forward(seq.tokens[-1:]).logits
    first, tokens, probs = entropy(logits[0]), [], []
    for _ in range(min(limit, gamma.gamma)):
        probs.append(seq.processor(logits))
        tokens.append(sample(probs[-1], seq.rng, "draft"))
        logits = slot.forward(tokens[-1]).logits
    return Proposal(torch.cat(tokens), None, torch.cat(probs), first)


def leave_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither before a round nor after one does the drafter model forget a row."""
    monkeypatch.setattr(ModelDrafter, "propose", uncropped)
    monkeypatch.setattr(ModelDrafter, "observe", lambda self, seq, round: None)


@pytest.mark.parametrize("method", ["speculative", "egag"])
def test_a_right_engine_passes(pair: Pair, method: str) -> None:
    assert checks(pair, method) == {"greedy": "PASS", "redraft": "PASS", "distribution": "PASS"}


def test_recovered_tokens_drawn_from_p_fail_the_distribution(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = RejectionVerifier.decide

    def drawn_from_p(
        self: RejectionVerifier, batch: ProposalBatch, p: torch.Tensor, rngs: abc.Sequence[RNG]
    ) -> DeviceVerdict:
        verdict = honest(self, batch, p, rngs)
        return replace(verdict, token=sample_each(p.index_select(0, batch.behind(verdict.end)), rngs))

    monkeypatch.setattr(RejectionVerifier, "decide", drawn_from_p)
    assert checks(pair) == {"greedy": "PASS", "redraft": "PASS", "distribution": "FAIL"}


def test_accepting_every_draft_fails_greedy_and_distribution(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, follow = RejectionVerifier.decide, verify.follow

    def accept_all(
        self: RejectionVerifier, batch: ProposalBatch, p: torch.Tensor, rngs: abc.Sequence[RNG]
    ) -> DeviceVerdict:
        certain = ProposalBatch([replace(proposal, draft_probs=None) for proposal in batch.proposals], batch.device)
        agreeing = p.clone()
        agreeing[batch.rows] = 0.0
        agreeing[batch.rows, batch.tokens] = 1.0
        return honest(self, certain, agreeing, rngs)

    def follow_all(batch: ProposalBatch, wanted: torch.Tensor) -> DeviceVerdict:
        return follow(batch, wanted.index_copy(0, batch.rows, batch.tokens))

    monkeypatch.setattr(RejectionVerifier, "decide", accept_all)
    monkeypatch.setattr(verify, "follow", follow_all)
    assert checks(pair) == {"greedy": "FAIL", "redraft": "PASS", "distribution": "FAIL"}


def test_a_drafter_that_does_not_crop_fails_the_redraft_alone(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_rows(monkeypatch)
    assert checks(pair) == {"greedy": "PASS", "redraft": "FAIL", "distribution": "PASS"}


def test_a_damaged_target_cache_fails_greedy(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = ModelRunner.keep

    def shifted(self: ModelRunner, base: int, path: tuple[int, ...]) -> None:
        """Overwrites the keys of the last committed token."""
        keep(self, base, path)
        self._cache.move(torch.tensor([0]), base)

    monkeypatch.setattr(ModelRunner, "keep", shifted)
    assert checks(pair, "ngram")["greedy"] == "FAIL"


def test_a_control_that_is_not_caught_makes_the_verdict_weak(pair: Pair) -> None:
    """A drafter that is the target is never rejected: no bias can show."""
    object.__setattr__(pair, "drafter", ModelRunner(pair.target.model))
    assert checks(pair)["distribution"] == "WEAK"


def test_the_worst_check_is_the_verdict() -> None:
    grades = [Check("a", "PASS", {}), Check("b", "WEAK", {}), Check("c", "FAIL", {})]
    assert [MethodReport("m", tuple(grades[:count])).verdict for count in (1, 2, 3)] == ["PASS", "WEAK", "FAIL"]


def test_the_level_shares_the_false_alarm_rate_among_all_tests(pair: Pair) -> None:
    assert Selftest(pair, ["speculative", "egag"], draws=1).level == pytest.approx(1e-3 / (2 * 2 * 3))


def test_the_reference_cannot_be_checked_against_itself(pair: Pair) -> None:
    with refused("target", "speculative, egag, heuristic, confidence, ucb, ngram"):
        Selftest(pair, ["target"], draws=1)


def test_the_command_prints_a_verdict_a_method_and_fails_when_one_is_not_pass(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = invoke("selftest", "--methods", "speculative", "--target-weights", "full", "--json")
    (report,) = objects(result.stdout)
    assert result.exit_code == 0 and report["method"] == "speculative" and report["verdict"] == "PASS"
    assert [check["name"] for check in report["checks"]] == ["greedy", "redraft", "distribution"]
    leave_rows(monkeypatch)
    failed = invoke("selftest", "--methods", "speculative", "--target-weights", "full")
    assert failed.exit_code == 1 and "FAIL" in failed.stdout and "0.001 per run" in failed.stdout
    assert invoke("selftest", "--methods", "nothing").exit_code == 2


def test_quick_draws_for_the_first_method_alone_and_says_so(invoke: Invoke) -> None:
    result = invoke("selftest", "--methods", "ngram,speculative")
    assert result.exit_code == 0
    assert "1 of 2" in result.stderr and "2 of 2" in result.stderr
    assert "was tested only for ngram, not for the other 1" in " ".join(result.stdout.split())
    drawn = [
        {check["name"] for check in report["checks"]} >= {"distribution"}
        for report in objects(invoke("selftest", "--methods", "ngram,speculative", "--json").stdout)
    ]
    assert drawn == [True, False]


def test_a_weak_check_is_told_and_is_no_failure(invoke: Invoke, pair: Pair) -> None:
    object.__setattr__(pair, "drafter", ModelRunner(pair.target.model))
    result = invoke("selftest", "--methods", "speculative")
    assert result.exit_code == 0 and "WEAK  speculative" in result.stderr and "too little power" in result.stdout


def test_what_was_found_before_an_error_is_shown(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    report = Selftest.report

    def breaks_off(self: Selftest, name: str) -> MethodReport:
        if name == "egag":
            raise UserError("it breaks off")
        return report(self, name)

    monkeypatch.setattr(Selftest, "report", breaks_off)
    broken = invoke("selftest", "--methods", "speculative,egag", "--target-weights", "full")
    assert broken.exit_code == 2 and "it breaks off" in broken.stderr
    assert "speculative" in broken.stdout and "PASS" in broken.stdout


products = pytest.mark.skipif(not int8.runs(), reason="this CPU or torch lacks the products")


@products
def test_each_format_of_this_machine_is_checked_in_full(invoke: Invoke) -> None:
    """The tiny pair's inputs do not divide into groups of 32, which is told."""
    result = invoke("selftest", "--full", "--methods", "speculative", "--json")
    full, rounded = objects(result.stdout)
    assert (result.exit_code, full["target_weights"], rounded["target_weights"]) == (0, "full", "int8")
    assert [check["name"] for check in full["checks"]] == ["greedy", "redraft", "distribution"]
    assert [check["name"] for check in rounded["checks"]] == ["greedy", "redraft", "rows"]
    assert rounded["verdict"] == "PASS"
    assert "int4 is not checked: target_weights int4 given, and tiny has 48 inputs of down_proj" in result.stderr


@products
def test_one_scale_over_all_rows_fails_the_rows(pair: Pair) -> None:
    rounded = pair.in_format("int8")
    broken = replace(rounded, target=ModelRunner(faulty(rounded.target.model)))  # type: ignore[arg-type]
    found = {check.name: check for check in Selftest(broken, ["ngram"], draws=0).report("ngram").checks}
    assert found["rows"].verdict == "FAIL" and found["rows"].numbers["different"] > 0


@products
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_control_is_noticed_in_each_dtype_around_the_products(dtype: torch.dtype) -> None:
    rounded = from_transformers(random_model(llama()).to(dtype)).with_format(FORMATS["int8"])
    texts = [[5, 6, 7, 8], [9, 10, 11]]
    assert compare_rows(rounded, texts).different == 0
    assert compare_rows(faulty(rounded), texts).different > 0


@products
def test_rows_that_the_control_leaves_alike_are_weak(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "faulty", lambda model: model)
    (_, check) = Selftest(pair.in_format("int8"), ["ngram"], draws=0).report("ngram").checks
    assert (check.name, check.verdict) == ("rows", "WEAK") and check.numbers["compared"] > 3 * sum(rows._COUNTS)


@products
def test_on_a_rounded_target_a_tie_is_a_failure(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Comparison, "divergence", lambda self, name: Divergence("tie", 1, 0.0, 1.0))
    for one, verdict in ((pair, "PASS"), (pair.in_format("int8"), "FAIL")):
        assert Selftest(one, ["ngram"], draws=0).report("ngram").checks[0].verdict == verdict
