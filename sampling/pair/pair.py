"""A target and its drafter, with the tokenizer they share: everything a method needs from outside."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sampling.forward.kernels.formats import FORMATS, FULL, refuse_format
from sampling.forward.kernels.int8 import in_int8, rough_int8
from sampling.forward.kernels.shape_check import LayerSizes, refuse_indivisible
from sampling.forward.models.lean import LeanModel
from sampling.forward.recomputing import RecomputingRunner
from sampling.forward.runner import Runners, WholeRunner, has_one_width
from sampling.forward.sharing import SharedModel
from sampling.grammar.spelling import OFF_WORD
from sampling.heads.head_files import Head, fingerprint
from sampling.heads.published.formats import check_fit, read_head
from sampling.heads.published.windows import HeadWindow
from sampling.methods.chat_template import UNTOLD, TemplateVariables
from sampling.methods.parameters import VOCABULARY, WEIGHTS
from sampling.methods.part import OF_DRAFTER
from sampling.pair import pair_messages as messages
from sampling.pair.conversation_ids import conversation_ids
from sampling.pair.drafting_pair import ArithmeticT
from sampling.pair.kept.heads import KeptHeads
from sampling.pair.model_info import ModelInfo, batch_invariant, checked_in_one_width, compiled
from sampling.pair.profile import LatencyProfile
from sampling.pair.prompt_ids import prompt_ids, values_told
from sampling.tokenizer.contract import Tokenizer
from sampling.vocabularies.crossing import AUTO, Crossing
from utils.errors import UserError
from utils.parameter import Values

if TYPE_CHECKING:
    from sampling.methods.method import Method

MODEL = "model"
T = TypeVar("T")


@dataclass(frozen=True)
class Pair:
    """A target and what drafts for it: a model, trained heads by kind, or nothing.

    `notes` say what was adjusted while loading, in whole sentences. cached: False where every forward starts anew.
    compile, batch_invariant: see `LoadOptions`, for formats that are made later. head_window: see there.
    encoder: both are encoder-decoder models. drafter_heads: heads that continue the states of the drafter model.
    drafts_for: the name of the target of which this pair's own is the drafter; empty where it is none.
    profile: what its forwards and drafts cost here, where that was measured. share: makes of a runner one for many
    sequences, where they share the forwards of what drafts. crossing: between the vocabularies, where the drafter model
    has another tokenizer. kept_heads: what ran heads before.
    """

    target: WholeRunner
    drafter: WholeRunner | None
    tokenizer: Tokenizer
    stop: frozenset[int]
    target_info: ModelInfo
    drafter_info: ModelInfo | None = None
    notes: tuple[str, ...] = field(default=())
    heads: Mapping[str, Path] = field(default_factory=dict)
    cached: bool = True
    encoder: bool = False
    compile: str = "auto"
    batch_invariant: str = "auto"
    drafter_heads: Mapping[str, Path] = field(default_factory=dict)
    drafts_for: str = ""
    profile: LatencyProfile | None = None
    share: Callable[[Any], SharedModel] | None = None
    crossing: Crossing | None = None
    head_window: int | None = None
    kept_heads: KeptHeads = field(default_factory=KeptHeads, repr=False, compare=False)

    @cached_property
    def digest(self) -> str:
        """Hash of the target's embedding and norms, by which heads know their base."""
        return fingerprint(self.target.model.landmarks())

    @cached_property
    def of_drafter(self) -> "Pair":
        """The drafter model as a target, with the heads that draft for it. Raises `UserError` where there is none."""
        if self.drafter is None:
            raise UserError(self.lack(MODEL))
        return replace(
            self,
            target=self.drafter,
            drafter=None,
            target_info=self.drafter_info or self.target_info,
            drafter_info=None,
            heads=self.drafter_heads,
            drafter_heads={},
            drafts_for=self.target_info.name,
            profile=None,
        )

    def has(self, drafter: str) -> bool:
        """Whether it has the drafter model (`model`), the trained head of this kind, or one of the drafter model's."""
        if drafter.startswith(OF_DRAFTER):
            return (
                self.drafter is not None
                and self.crossing is None
                and self.of_drafter.has(drafter.removeprefix(OF_DRAFTER))
            )
        return self.drafter is not None if drafter == MODEL else drafter in self.heads

    def lack(self, drafter: str) -> str:
        """What to say where it has not."""
        if drafter == MODEL or (drafter.startswith(OF_DRAFTER) and self.drafter is None):
            return messages.NO_DRAFTER_MODEL
        if drafter.startswith(OF_DRAFTER):
            return self.of_drafter.lack(drafter.removeprefix(OF_DRAFTER))
        return messages.no_head(drafter, self.target_info.name, self.drafts_for, self.encoder)

    def lacks(self, method: "Method", values: Values) -> str | None:
        """Why a method cannot run on this pair where the parameters have these values; None where it can."""
        needed = method.needs(values)
        if apart := self._apart(method, needed, values):
            return apart
        if needed is not None and not self.has(needed):
            return self.lack(needed)
        if method.search and values.get("grammar", OFF_WORD) != OFF_WORD:
            return messages.no_grammar(method.name)
        if method.drafts_trees(values) and not self.target.model.trees:
            return messages.no_trees(method.name, self.target_info.name)
        return None

    def _apart(self, method: "Method", needed: str | None, values: Values) -> str | None:
        """Why the vocabularies of target and drafter model keep a method from running; None where they do not."""
        wanted = values.get(VOCABULARY.name, AUTO)
        if self.crossing is None:
            if wanted == AUTO or self.drafter is None or needed != MODEL or VOCABULARY not in method.relevant(values):
                return None
            return messages.one_tokenizer(wanted)
        if method.runs == "drafter" or any(part.one_vocabulary for part in method.parts):
            return messages.other_tokenizer(method.name, method.runs == "drafter", self.crossing.drafter.name)
        return None

    def head(self, kind: str) -> Head:
        """The trained head of this kind. Raises `UserError` where there is none, or one for another base model."""
        if kind not in self.heads:
            raise UserError(self.lack(kind))
        head = read_head(self.heads[kind], self.target.model)
        info, window = self.target_info, self.target.model.window
        check_fit(head, info.name, info.place, self.target.model, self.digest)
        return replace(head, window=HeadWindow.of(head.config).within(self.head_window, window))

    def head_forward(self, kind: str, forward: type[ArithmeticT], wanted: str) -> ArithmeticT:
        """What the trained head of this kind computes, under `draft_weights`.

        Raises `UserError` as `head` and `drafts_in_int8` do.
        """
        made = forward.of(self.head(kind), self.target.model)
        return made.with_kernel(rough_int8) if self.drafts_in_int8(kind, wanted) else made

    def kept_head(
        self, kind: str, forward: type[ArithmeticT], wanted: str, make: Callable[[ArithmeticT, bool], T]
    ) -> T:
        """What `make` gives of `head_forward` and of whether forwards have fixed shapes: made once on this target."""
        pool = getattr(self.share, "hold", None)  # of a `KVPool`
        fixed = self.target.fixed_shapes and pool is None
        about = kind, forward, wanted, make, fixed, self.cached, self.share, self.head_window

        def made() -> T:
            head = make(self.head_forward(kind, forward, wanted), fixed)
            if pool is not None:
                pool(head)
            return head

        return self.kept_heads.take(self.target.model, self.heads.get(kind), about, made)

    def drafts_in_int8(self, drafter: str, wanted: str) -> bool:
        """What `draft_weights` comes to for the drafter model (`model`) or a kind of head, which this pair has.

        Raises `UserError` where int8 is asked for and cannot be had.
        """
        if drafter != MODEL:
            return in_int8(wanted, self.target.model.embedding, trained=True)
        model = self.drafter.model if self.drafter else None
        if isinstance(model, LeanModel):
            return in_int8(wanted, model.embedding, self.drafter_info is not None and self.drafter_info.trained)
        if wanted == "int8":
            raise UserError(messages.NO_INT8_DRAFTER)
        return False

    def drafting(self, wanted: str) -> Runners:
        """What runs the drafter model under `draft_weights`, shared where the target's forwards are.

        Raises `UserError` as `drafts_in_int8` does, and where there is no drafter model.
        """
        if self.drafter is None:
            raise UserError(self.lack(MODEL))
        rough = self.drafts_in_int8(MODEL, wanted)
        runner = self.drafter.on(self.drafter.model.int8) if rough else self.drafter  # type: ignore[attr-defined]
        return self.share(runner) if self.share else runner

    def runner(self, method: "Method") -> WholeRunner:
        """The model that a method's text comes from. Raises `UserError` where there is none."""
        if method.runs == "target":
            return self.target
        if self.drafter is None:
            raise UserError(f"{method.name}: no drafter model is loaded; start with --drafter")
        return self.drafter

    def resolve(self, method: "Method", values: Values) -> dict[str, Any]:
        """What a method's `auto` settings come to: whether drafters compute in int8, how they cross vocabularies."""
        read, resolved = method.relevant(values), {}
        needed = method.needs(values)
        drafter = MODEL if needed is not None and needed.startswith(OF_DRAFTER) else needed
        if WEIGHTS in read and drafter is not None and self.has(drafter):
            resolved[WEIGHTS.name] = "int8" if self.drafts_in_int8(drafter, values[WEIGHTS.name]) else "full"
        if VOCABULARY in read and self.crossing is not None:
            resolved[VOCABULARY.name] = self.crossing.chosen(values[VOCABULARY.name])
        return resolved

    def encode(
        self, turns: Sequence[str], chat: bool, system: str | None = None, variables: TemplateVariables = UNTOLD
    ) -> list[int]:
        """Ids of a prompt: see `prompt_ids`; the turns of an encoder's prompt stand without a template."""
        longest = max(self.target.window, getattr(self.target.model, "source_window", 0))
        asked = chat and not self.encoder, chat
        return prompt_ids(self.tokenizer, self.target_info.name, longest, turns, *asked, system, variables)

    def encode_messages(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        variables: TemplateVariables = UNTOLD,
        opens: bool = True,
    ) -> list[int]:
        """Ids of messages in OpenAI's form: see `conversation_ids`."""
        if self.encoder:
            raise UserError(f"messages with tools given, and {self.target_info.name} has an encoder; expected none")
        name, window = self.target_info.name, self.target.window
        return conversation_ids(self.tokenizer, name, window, messages, tools, variables, opens)

    def bytes_of(self, token: int) -> bytes:
        """The bytes that a token stands for; of a tokenizer that llguidance cannot read, those of its text."""
        from sampling.grammar.vocabulary import vocabulary_of  # with llguidance, which nobody else needs

        try:
            return vocabulary_of(self.tokenizer, self.target.vocab_size, self.stop).bytes_of(token)
        except UserError:
            return str(self.tokenizer.decode([token])).encode()

    def piece(self, token: int) -> str:
        """The text of a token; bytes that are no whole characters are shown as such."""
        return self.bytes_of(token).decode("utf-8", "replace")

    def template_values(self, variables: TemplateVariables) -> dict[str, Any]:
        """What the chat template is told of these: see `prompt_ids`. Raises `UserError` where it does not read them."""
        name, there = self.target_info.name, not self.encoder
        return values_told(self.tokenizer, name, variables, there, chat=there)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of an answer, without special tokens."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def fresh(self) -> "Pair":
        """The same models with empty caches."""
        drafter = self.drafter and self.drafter.another()
        return replace(self, target=self.target.another(), drafter=drafter, kept_heads=KeptHeads())

    def in_format(self, name: str) -> "Pair":
        """The target with its weights in another format, its cache its own; what drafts is the same for all formats.

        Raises `UserError` for a target whose weights are rounded already or cannot be.
        """
        model, info = self.target.model, self.target_info
        if name == info.stored:
            return self
        asked = f"target_weights {name}"
        if info.stored != FULL:
            raise UserError(messages.rounded_already(asked, info.name, info.stored))
        if info.processes > 1:
            raise UserError(messages.cut_up(asked, info.name, info.processes))
        refuse_format(name, self.target.device, asked)
        if not isinstance(model, LeanModel):
            raise UserError(messages.own_layers(asked, info.name))
        refuse_indivisible(name, info.name, LayerSizes.of_model(model), asked)
        one_width = has_one_width(self.target)
        if info.graphs and not one_width and FORMATS[name].batch_invariant_on(self.target.device):
            raise UserError(f"{asked} and graphs on given; on a CPU expected one of them")
        info = replace(info, kernel=None, stored=name, compiled=False, batch_invariant=False)
        made, info, steps = compiled(model.with_format(FORMATS[name]), info, self.compile)
        wanted = "off" if one_width else self.batch_invariant
        made, info, why = batch_invariant(made, info, wanted, self.tokenizer)
        runner = self.target.on(made)
        if has_one_width(runner):
            info = checked_in_one_width(runner, info, self.tokenizer)
        notes = (*self.notes, *(note for note in (steps, why and f"{info.name} {why}.") if note))
        return replace(self, target=runner, target_info=info, notes=notes, profile=None)

    def recomputing(self) -> "Pair":
        """The same models without a KV cache: the reference that cached runs must agree with."""
        target = RecomputingRunner(self.target.model, self.target.vocab_size)
        drafter = self.drafter and RecomputingRunner(self.drafter.model, self.drafter.vocab_size)
        return replace(self, target=target, drafter=drafter, cached=False, profile=None)
