"""What became of a round's drafts, and the line of /debug that says it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sampling.measure.answer import Decode
from utils.events import AnyRound, BeamRound, Round

if TYPE_CHECKING:
    from sampling.logits_probe import RawProbabilities

Line = Callable[[AnyRound], str]


def judgements(round: Round) -> list[str]:
    """What became of each draft: accepted, rejected or not tested.

    The children of an accepted node are tried in order until one is accepted; below a rejected one nothing
    is tested. Example: chain of 3, path (0,) -> accepted, rejected, not tested.
    """
    parents = range(-1, len(round.drafts) - 1) if round.parents is None else round.parents
    chosen = {parents[row]: row for row in round.path}
    path = {-1, *round.path}
    words = []
    for row, parent in enumerate(parents):
        if row in round.path:
            words.append("accepted")
        elif parent in path and (row < chosen[parent] if parent in chosen else round.next_token is not None):
            words.append("rejected")
        else:
            words.append("not tested")
    return words


def round_line(round: AnyRound, decode: Decode, raw: "RawProbabilities | None" = None) -> str:
    """The line of /debug for one round; `decode` should show special tokens too. raw: q and p before the processor."""
    if isinstance(round, BeamRound):
        return _beam_line(round, decode)
    before = zip(raw.q, raw.p, strict=True) if raw else [(None, None)] * len(round.drafts)
    drafts = [
        f"{decode([token])!r} q={_probability(q)} p={_probability(p)}{_raw(raw_q, raw_p)} {judgement}"
        for token, q, p, (raw_q, raw_p), judgement in zip(
            round.drafts, round.q, round.p, before, judgements(round), strict=True
        )
    ]
    role = "recovered" if round.rejected is not None else "bonus" if round.drafts else "target"
    ending = "stopped by an accepted draft" if round.next_token is None else f"{role} {decode([round.next_token])!r}"
    ending += _raw(None, raw.next_p if raw else None)
    times = f"draft {round.draft_s * 1e3:.1f} ms, verify {round.verify_s * 1e3:.1f} ms"
    return " | ".join([f"#{round.number + 1} pos {round.position} gamma {round.gamma}", *drafts, ending, times])


def _beam_line(round: BeamRound, decode: Decode) -> str:
    """Each live beam by its last token and score, then what is found and what is settled."""
    beams = [f"{decode(beam.tokens[-1:])!r} score {beam.score:.3f}" for beam in round.beams]
    best_text = [f"found {len(round.found)}, best score {round.found[0].score:.3f}"] if round.found else []
    settled = [f"settled {decode(round.emitted)!r}"] if round.emitted else []
    return " | ".join([f"#{round.number + 1}", *beams, *best_text, *settled, f"verify {round.verify_s * 1e3:.1f} ms"])


def _raw(q: float | None, p: float | None) -> str:
    """What is known from before the processor, in brackets."""
    known = [f"{name}={_probability(value)}" for name, value in (("q", q), ("p", p)) if value is not None]
    return f" (raw {' '.join(known)})" if known else ""


def _probability(value: float) -> str:
    return f"{value:.2f}" if value >= 0.005 or value == 0 else f"{value:.0e}"
