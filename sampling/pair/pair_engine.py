"""From a method's name and settings to a stream of events, on a loaded pair."""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeVar

import torch

from egag.length_rule import FixedGamma, LengthRule
from sampling.batch import Batch, decode_many
from sampling.beam import BeamSearch
from sampling.drafter import Drafter
from sampling.engine import Description, Text
from sampling.forward.noise_floor import NoiseFloor
from sampling.forward.prefixes.use import Prefixes
from sampling.forward.referee import RefereeResult, refereed
from sampling.forward.runner import Runner, WholeRunner
from sampling.forward.traffic import Traffic
from sampling.grammar.spelling import OFF_WORD
from sampling.logits_probe import LogitsProbe
from sampling.loop import decode
from sampling.methods.chat_template import UNTOLD, TemplateVariables
from sampling.methods.choices import make_processor
from sampling.methods.method import Method
from sampling.methods.tables import METHODS, SEARCHES
from sampling.methods.verifiers import make_verifier
from sampling.pair.kept.drafting import KeptDrafting
from sampling.pair.kv_pool import Sharing
from sampling.pair.pair import Pair
from sampling.pair.pair_messages import out_of_memory
from sampling.pair.processing import processor_of, request_of
from sampling.pair.profile import LatencyProfile, plain_cost
from sampling.pair.profile_store import with_stored
from sampling.prefilled.shared import Prefills
from sampling.processors.with_text import processed_noise_floor
from sampling.scheduling.live_text import Request
from sampling.verify.lossy import RejectAllVerifier
from sampling.verify.verifier import Verifier
from utils.device.spare import OUT_OF_MEMORY, drop_all
from utils.errors import NoDistribution, UserError
from utils.events import Event
from utils.parameter import ChosenPart
from utils.provenance import project_version

T = TypeVar("T")
_VERSION = project_version()


class PairEngine:
    """Our engine: the loop on a pair. It owns drafters and rules, whose declared memory outlives a prompt.

    raw: what watches the generations that begin from now on; None = nobody looks. prefills: where the target's prompts
    come from that are read before; None = each generation reads its own.
    """

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self._kept = KeptDrafting()
        self._formats: dict[str, PairEngine] = {}
        self._sharing = Sharing()
        self.raw: LogitsProbe | None = None
        self.prefills: Prefills | None = None

    @cached_property
    def _recomputing(self) -> Pair:
        return self.pair.recomputing()

    @cached_property
    def _traffic(self) -> Traffic | None:
        return Traffic.of(self.pair.target.model)

    def describe(self) -> Description:
        """See `Engine.describe`."""
        pair = self.pair
        about = pair.target_info, pair.drafter_info, pair.target.window, pair.target.device, pair.heads
        return Description(*about, self._traffic, _VERSION, pair.target.vocab_size, pair.encoder)

    @property
    def target(self) -> WholeRunner:
        """See `LocalEngine.target`."""
        return self.pair.target

    def fresh(self) -> "PairEngine":
        """See `LocalEngine.fresh`."""
        return PairEngine(self.pair.fresh())

    def all_text(self, ids: Sequence[int]) -> str:
        """See `LocalEngine.all_text`."""
        return str(self.pair.tokenizer.decode(ids))

    def vocabulary(self) -> Mapping[str, int]:
        """See `LocalEngine.vocabulary`."""
        return dict(self.pair.tokenizer.get_vocab())

    def lacks(self, name: str, values: Mapping[str, Any]) -> str | None:
        """See `LocalEngine.lacks`."""
        return self.pair.lacks(METHODS[name], values)

    def tokenise(
        self, turns: Sequence[str], chat: bool, system: str | None = None, variables: TemplateVariables = UNTOLD
    ) -> list[int]:
        """See `Engine.tokenise`."""
        return self.pair.encode(turns, chat, system, variables)

    def text(self, ids: Sequence[int]) -> str:
        """See `Engine.text`."""
        return self.pair.decode(ids)

    def reference(
        self, prompt: Sequence[int], said: Sequence[int], processor: ChosenPart, grammar: str = OFF_WORD
    ) -> NoiseFloor:
        """See `Engine.reference`."""
        under = processor_of(self.pair, processor, grammar)
        return processed_noise_floor(self.pair.target, prompt, said, under, self.pair.stop)

    def referee(self, prompt: Sequence[int], output: Sequence[int]) -> RefereeResult:
        """See `Engine.referee`."""
        return refereed(self.pair.target, prompt, output)

    def resolve(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """See `Engine.resolve`."""
        return self.pair.resolve(METHODS[name], values)

    def stream(
        self, name: str, values: Mapping[str, Any], prompt: Sequence[int], run: str | None = None
    ) -> Iterator[Event]:
        """See `Engine.stream`. Raises `UserError` when the method needs what the pair has not."""
        method, pair, settings = self._asked(name, values)
        target = pair.runner(method)
        if method.search:
            search: BeamSearch = SEARCHES[method.search].build(pair, settings)
            searched = partial(search.decode, target, prompt, max_new_tokens=values["length"], stop=pair.stop)
            return self._within_memory(self._begun(searched, target, (), prompt), target.device)
        drafter = self._kept.drafter(method, pair, settings, run or name)
        rule = self._kept.rule(method, pair, settings, run or name)
        if pair.profile and (price := method.cost_model(pair.profile, settings, len(prompt))):
            rule.use_cost_model(price)
        self._kept.keep_rule(method, run or name, rule)
        verifier, prefixes = make_verifier(method, settings), self._kept.prefixes(values, run or name)
        return self._decoded(target, drafter, rule, verifier, values, prompt, self.raw, prefixes)

    def stream_many(
        self, name: str, values: Mapping[str, Any], texts: Iterable[Text], batch: int, run: str | None = None
    ) -> Iterator[tuple[Any, Event]]:
        """See `Engine.stream_many`."""
        many = self.batch(name, values, batch, run)
        requests = map(partial(request_of, partial(self.request, name, values)), texts)  # goes on after its end
        events = ((live.request.tag, event) for live, event in decode_many(many, requests))
        return self._within_memory(events, many.target.device)

    def batch(self, name: str, values: Mapping[str, Any], size: int, run: str | None = None) -> Batch:
        """What writes many texts with one method, `size` of them at a time; its rules and drafter are as in `stream`.

        A named run begins without prefixes. Raises `UserError` where the method cannot run, or not so.
        """
        method, pair, settings = self._asked(name, values)
        if method.search or not values["cache"]:
            what = method.name if method.search else "cache off"
            raise UserError(f"batch {size} and {what} given; expected no batch, or another method with a cache")
        share, key = self._sharing.within(values["kv_memory"]), run or name
        target = share(pair.runner(method))
        drafter = self._kept.drafter(method, replace(pair, share=share), settings, key)
        rule, verifier = partial(self._kept.rule, method, pair, settings, key), make_verifier(method, settings)
        sizes = {
            "prefill_chunk": values["prefill_chunk"],
            "prefixes": self._kept.prefixes(values, run or "", new=run is not None),
            "room": self._sharing.room(target, size, method.most_rows(settings)),
        }
        learnt = partial(self._kept.keep_rule_of, method, key)
        return Batch(target, drafter, rule, verifier, size, learnt, plain_cost(pair.profile), **sizes)

    def request(self, name: str, values: Mapping[str, Any], text: Text) -> Request:
        """A text as such a batch takes it, with the values that are its own: length, processor and seed."""
        method, pair, settings = self._asked(name, values)
        price = method.cost_model(pair.profile, settings, len(text.prompt)) if pair.profile else None
        return Request(
            list(text.prompt),
            processor_of(self.pair, values["processor"], values["grammar"] if text.grammar is None else text.grammar),
            text.length,
            values["seed"] if text.seed is None else text.seed,
            self.pair.stop,
            price=price,
            arrives_s=text.arrives_s,
            tag=text.tag,
        )

    def walked(
        self,
        name: str,
        values: Mapping[str, Any],
        prompt: Sequence[int],
        most: int,
        raw: LogitsProbe,
        run: str | None = None,
    ) -> Iterator[Event]:
        """Events of a method that drafts `most` tokens at every position of the target's own text; none is accepted.

        Its drafter remembers of earlier prompts what the one of `stream` does, and leaves nothing there: the text may
        still be generated, and is learnt from then. raw: what watches. Raises `UserError` as `stream` does.
        """
        method, pair, settings = self._asked(name, values)
        drafter = self._kept.new_drafter(method, pair, settings, run or name)
        rule, verifier = FixedGamma(most), RejectAllVerifier()
        return self._decoded(pair.target.another(), drafter, rule, verifier, values, prompt, raw)

    def drafter(self, name: str, values: Mapping[str, Any]) -> Drafter:
        """The drafter that `stream` uses with these values, with what it remembers."""
        method = METHODS[name]
        pair = self.pair if values["cache"] else self._recomputing
        return self._kept.drafter(method, pair, {**values, **method.preset}, name)

    def lossless(self, name: str, values: Mapping[str, Any]) -> bool:
        """See `Engine.lossless`."""
        return make_verifier(METHODS[name], values).lossless(make_processor(values["processor"]))

    def profile(self) -> LatencyProfile | None:
        """See `Engine.profile`."""
        return self.pair.profile

    def use_profile(self, profile: LatencyProfile | None) -> None:
        """See `LocalEngine.use_profile`: only drafters that weigh costs are built anew, and go on with their memory."""
        self.pair = replace(self.pair, profile=profile)

    def renew(self) -> None:
        """Begin with empty caches: whatever an interrupted forward left is gone.

        New drafters go on with what the ones before remember of earlier prompts.
        """
        self.pair = self.pair.fresh()
        self.__dict__.pop("_recomputing", None)
        self._kept.set_aside()
        for engine in self._formats.values():
            engine.renew()

    def memories(self) -> list[tuple[str, str]]:
        """(run, what it keeps) of each drafter and rule that was used and keeps something."""
        return self._kept.memories()

    def forget(self) -> None:
        """See `Engine.forget`."""
        self._kept = KeptDrafting()

    def in_format(self, name: str) -> "PairEngine":
        """See `Engine.in_format`; made once, because many layers take seconds."""
        if name == self.pair.target_info.stored:
            return self
        if name not in self._formats:
            self._formats[name] = PairEngine(with_stored(self.pair.in_format(name)))
        return self._formats[name]

    def _asked(self, name: str, values: Mapping[str, Any]) -> tuple[Method, Pair, dict[str, Any]]:
        """The method, the pair that it runs on with these values, and all settings of its parts."""
        method = METHODS[name]
        if lacking := self.pair.lacks(method, values):
            raise UserError(lacking)
        return method, self.pair if values["cache"] else self._recomputing, {**values, **method.preset}

    def _decoded(
        self,
        target: Runner,
        drafter: Drafter,
        rule: LengthRule,
        verifier: Verifier,
        values: Mapping[str, Any],
        prompt: Sequence[int],
        raw: LogitsProbe | None,
        prefixes: Prefixes | None = None,
    ) -> Iterator[Event]:
        processor = processor_of(self.pair, values["processor"], values["grammar"])
        if raw is not None:
            processor, rule = raw.over(processor, rule)
        ends = {"max_new_tokens": values["length"], "stop": self.pair.stop, "seed": values["seed"]}
        decoded = partial(decode, target, drafter, rule, verifier, processor, prompt, **ends, prefixes=prefixes)
        return self._within_memory(self._begun(decoded, target, drafter.needs_hidden, prompt), target.device)

    def _begun(
        self, decoded: Callable[..., Iterator[Event]], target: Runner, layers: Sequence[int], prompt: Sequence[int]
    ) -> Iterator[Event]:
        """The events, from a prompt that was read before where there is such."""
        ours = target is self.pair.target
        handover = self.prefills.find(self.pair, prompt, layers) if ours and self.prefills is not None else None
        yield from decoded(handover=handover)

    def _within_memory(self, events: Iterator[T], device: torch.device) -> Iterator[T]:
        """The same events; caches begin anew where memory runs out (`UserError` says what helps) or may hold NaN."""
        try:
            yield from events
        except OUT_OF_MEMORY as error:
            self.renew()
            error.__traceback__ = error.__context__ = None  # its frames hold tensors
            gc.collect()
            drop_all()
            info = self.pair.target_info
            raise UserError(out_of_memory(device, error, info.stored, info.graphs)) from error
        except Exception as error:
            if isinstance(error, NoDistribution) or not isinstance(error, UserError):
                self.renew()
            raise
