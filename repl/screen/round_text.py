"""What became of a round's drafts, and the lines of /debug that say it."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from sampling.measure.answer import Decode
from utils.events import AnyRound, BeamRound, Round
from utils.text import shown

if TYPE_CHECKING:
    from sampling.logits_probe import RawProbabilities

TellRound = Callable[[AnyRound], Text]
JUDGED = {"accepted": "green", "rejected": "red", "not tested": "dim"}
TARGET = "blue"


def judgements(round: Round) -> list[str]:
    """What became of each draft: accepted, rejected or not tested.

    The children of an accepted node are tried in order until one is accepted; below a rejected one nothing
    is tested. Example: chain of 3, path (0,) -> accepted, rejected, not tested.
    """
    parents = _parents(round)
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


def _parents(round: Round) -> Sequence[int]:
    """The parent of each draft by row, -1 for the text: in a chain the draft before it."""
    return range(-1, len(round.drafts) - 1) if round.parents is None else round.parents


def round_text(round: AnyRound, decode: Decode, raw: "RawProbabilities | None" = None) -> Text:
    """What /debug prints for one round: a heading, a line a draft, and what the target wrote.

    A draft is indented by its depth in a tree. `decode` should show special tokens too. raw: q and p before the
    processor.
    """
    if isinstance(round, BeamRound):
        return Text("\n   ").join(_beam_lines(round, decode))
    lines = [_heading(round), *_draft_lines(round, decode, raw), _ending(round, decode, raw)]
    return Text("\n   ").join(lines)


def _heading(round: Round) -> Text:
    times = f"draft {round.draft_s * 1e3:.1f} ms, verify {round.verify_s * 1e3:.1f} ms"
    return Text(f"#{round.number + 1}  position {round.position}, gamma {round.gamma}, {times}", "dim")


def _draft_lines(round: Round, decode: Decode, raw: "RawProbabilities | None") -> Iterator[Text]:
    before = zip(raw.q, raw.p, strict=True) if raw else [(None, None)] * len(round.drafts)
    depths: dict[int, int] = {-1: 0}
    parents = _parents(round)
    rows = zip(round.drafts, round.q, round.p, before, judgements(round), strict=True)
    for row, (token, q, p, (raw_q, raw_p), judgement) in enumerate(rows):
        depth = depths[row] = depths[parents[row]] + (1 if round.parents is not None else 0)
        indent = "  " * max(0, depth - 1)
        yield Text.assemble(
            indent,
            (shown(repr(decode([token]))), JUDGED[judgement]),
            (f"  {judgement}", JUDGED[judgement]),
            (f"  q={_probability(q)} p={_probability(p)}{_raw(raw_q, raw_p)}", "dim"),
        )


def _ending(round: Round, decode: Decode, raw: "RawProbabilities | None") -> Text:
    """What the target itself wrote behind the accepted drafts."""
    if round.next_token is None:
        return Text("stopped by an accepted draft", "dim")
    role = "recovered" if round.rejected is not None else "bonus" if round.drafts else "target"
    token = shown(repr(decode([round.next_token])))
    return Text.assemble((token, TARGET), (f"  {role}", "blue"), (_raw(None, raw.next_p if raw else None), "dim"))


def _beam_lines(round: BeamRound, decode: Decode) -> Iterator[Text]:
    """Each live beam by its last token and score, then what is found and what is settled."""
    yield Text(f"#{round.number + 1}  verify {round.verify_s * 1e3:.1f} ms", "dim")
    for beam in round.beams:
        yield Text.assemble(shown(repr(decode(beam.tokens[-1:]))), (f"  score {beam.score:.3f}", "dim"))
    if round.found:
        yield Text(f"found {len(round.found)}, best score {round.found[0].score:.3f}", "dim")
    if round.emitted:
        yield Text(f"settled {shown(repr(decode(round.emitted)))}", "green")


def _raw(q: float | None, p: float | None) -> str:
    """What is known from before the processor, in brackets."""
    known = [f"{name}={_probability(value)}" for name, value in (("q", q), ("p", p)) if value is not None]
    return f" (raw {' '.join(known)})" if known else ""


def _probability(value: float) -> str:
    return f"{value:.2f}" if value >= 0.005 or value == 0 else f"{value:.0e}"
