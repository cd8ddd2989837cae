"""One configuration answers texts, one or several at a time; what goes wrong with one is its record's error."""

import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ablation.plan.grid import BatchLoad, Configuration, Plan, PlannedGeneration, PlanPass, RowKey
from ablation.plan.prompts.file import Prompt
from ablation.results.make_record import make_record
from ablation.results.record import Record
from ablation.run.conversation import Conversation
from ablation.run.progress.watcher import Watcher
from engines.spec import SERVER
from sampling.arguments import check_room
from sampling.engine import Description, Engine, Text
from sampling.measure.comparison import Comparison
from sampling.measure.metrics import RunMetrics
from sampling.methods.chat_template import TemplateVariables
from utils.device.energy import EnergyMeter, energy_meter
from utils.device.machine import Machine
from utils.device.memory import peak_memory_mb, reset_peak_memory
from utils.errors import UserError
from utils.events import Event, FailedText, Finished, Prefilled, Round, WholeAnswer
from utils.parameter import ChosenPart

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EnginePass:
    """A pass over the prompts on an engine in one format of the target's weights.

    begun: how the engine described itself then. about: how it does once it has answered, when a server's version is
    known; asked for once. load: how many texts at a time, and how they come; None where each goes through the loop of
    one.
    """

    engine: Engine
    begun: Description
    about: Callable[[], Description]
    plan: Plan
    seeded: PlanPass
    load: BatchLoad | None
    lossless: Mapping[tuple[Configuration, ChosenPart], bool | None]

    def place(self, prompt: Prompt, turn: int, configuration: Configuration) -> PlannedGeneration:
        """Which generation a turn of a prompt is."""
        place = self.plan.place(self.seeded, prompt, turn, configuration, self.begun.target.stored, self.load)
        return replace(place, lossless=self.lossless[configuration, self.seeded.processor])

    def values(self, prompt: Prompt) -> dict[str, Any]:
        """Every setting, for a prompt; a configuration's own values come over them."""
        settings = {"processor": self.seeded.processor, "seed": self.seeded.seed, "length": self.plan.length(prompt)}
        return {**self.plan.values, **settings, "grammar": self.plan.grammar(prompt)}


@dataclass(slots=True)
class ConfigurationRun:
    """One configuration on turns of conversations, all of them at a load, or one turn of one.

    compared: what the reference did there on each prompt and turn.
    """

    setting: EnginePass
    configuration: Configuration
    conversations: Sequence[Conversation]
    turns: Sequence[int]
    compared: dict[tuple[str | int, int], Comparison]
    accounts: dict[RowKey, RunMetrics] = field(default_factory=dict)
    prompts: dict[RowKey, list[int]] = field(default_factory=dict)
    arrivals: dict[RowKey, float] = field(default_factory=dict)
    machine: Machine = field(default_factory=Machine)
    rounds_s: float = 0.0
    prefills_s: float = 0.0
    captures_s: float = 0.0
    begun: float | None = None
    seconds: float = 0.0
    peak_mb: float | None = None

    def generations(self) -> Iterator[tuple[Conversation, PlannedGeneration]]:
        """All of them, in the order of the plan."""
        for conversation in self.conversations:
            for turn in self.turns[: len(conversation.prompt.turns)]:
                yield conversation, self.setting.place(conversation.prompt, turn, self.configuration)

    def play(self, watcher: Watcher) -> None:
        """Answer all texts, and put what they took into the comparisons."""
        watcher.begin(next(self.generations())[1])
        reset_peak_memory(self.setting.begun.device)
        self.machine = Machine(self._meter())
        with self.machine:
            self._answer(watcher)
        about = self.setting.begun
        self.peak_mb = None if about.target.device == SERVER else peak_memory_mb(about.device)
        for conversation, place in self.generations():
            key, prompt = place.key, place.prompt
            known = self.compared.setdefault(
                (prompt.id, place.turn), Comparison(self.setting.engine, self.setting.values(prompt))
            )
            if conversation.error_at(place.turn) is None:
                name, method, parameters = self.configuration.name, self.configuration.method, self._own
                known.add(name, self.prompts[key], self.accounts[key], method=method, parameters=parameters)
            if (earlier := self.compared.get((prompt.id, place.turn - 1))) is not None:
                known.before |= earlier.spoken()

    def records(self) -> list[Record]:
        """A record of each."""
        whole = self._in_all() if self.setting.load else {}
        return [self._record(conversation, place, whole) for conversation, place in self.generations()]

    @property
    def _own(self) -> dict[str, Any]:
        return dict(self.configuration.parameters)

    def _record(self, conversation: Conversation, place: PlannedGeneration, whole: dict[str, Any]) -> Record:
        comparison, error = self.compared[place.prompt.id, place.turn], conversation.error_at(place.turn)
        record = make_record(comparison, place, self.machine, error, self.setting.about())
        if error is not None:
            return record
        # The record may be made after others have run, whose peak is not this one's.
        return replace(record, **whole, joules_per_token=self._joules_per_token(), peak_memory_mb=self.peak_mb)

    def _answer(self, watcher: Watcher) -> None:
        """Play all rounds; the next turn of a conversation is asked for once the one before is answered."""
        texts = _TextQueue(self, watcher)
        for (conversation, place), event in self._events(texts):
            if isinstance(event, FailedText):
                texts.failed(conversation, place, event.error)
                continue
            self._add(place, event)
            if isinstance(event, Round):
                watcher.round(place, event)
            if isinstance(event, Finished | WholeAnswer) and texts.answered(conversation, place):
                watcher.ended(place)
        self.seconds = time.perf_counter() - (self.begun or 0.0)

    def _events(self, texts: "_TextQueue") -> Iterator[tuple[Any, Event]]:
        """The events with what each text is; what goes wrong in them, and not in their reader, fails the texts."""
        try:
            yield from self._streamed(texts)
        except Exception as error:  # out of memory, or a bug: the others are still worth having
            texts.fail(_told(error, self._title))

    def _streamed(self, texts: "_TextQueue") -> Iterator[tuple[Any, Event]]:
        engine, load, configuration = self.setting.engine, self.setting.load, self.configuration
        if load is not None:
            values = {**self.setting.values(self.setting.plan.prompts[0]), **self._own}
            yield from engine.stream_many(configuration.method, values, texts, load.batch, self._title)
            return
        for text in texts:
            values = {**self.setting.values(text.tag[1].prompt), **self._own}
            for event in engine.stream(configuration.method, values, text.prompt, configuration.name):
                yield text.tag, event

    @property
    def _title(self) -> str:
        """At a load, whose memory of earlier prompts it continues."""
        if self.setting.load is not None:
            return f"{self.configuration.name}, {self.setting.load.text}"
        return f"prompt {self.conversations[0].prompt.id}, turn {self.turns[0]}: {self.configuration.name}"

    def _add(self, place: PlannedGeneration, event: Event) -> None:
        self.accounts[place.key].add(event)
        if isinstance(event, Prefilled):
            self.prefills_s += event.prefill_s
            self.captures_s += event.capture_s
        elif isinstance(event, Round):
            self.rounds_s += (event.draft_s + event.verify_s + event.other_s) / event.live
            self.captures_s += event.capture_s / event.live

    def _meter(self) -> EnergyMeter | None:
        """What counts the energy; nothing for a server, as nobody knows on which machine it computes."""
        about = self.setting.begun
        return None if about.target.device == SERVER else energy_meter(about.device)

    def _joules_per_token(self) -> float | None:
        """Of all texts together; None where one has failed, whose tokens are not all known."""
        accounts = self._whole().values()
        if self.machine.energy is None or len(accounts) < len(self.accounts):
            return None
        timed_s = self._time_s() if self.setting.load else sum(account.wall_s for account in accounts)
        return self.machine.energy.per_token(sum(account.new_tokens for account in accounts), timed_s)

    def _whole(self) -> dict[RowKey, RunMetrics]:
        """The accounts of the texts that have not failed."""
        failed = {place.key for conversation, place in self.generations() if conversation.error_at(place.turn)}
        return {key: account for key, account in self.accounts.items() if key not in failed}

    def _time_s(self) -> float:
        """The time of a load, from the first arrival to the last end; of another engine only that in all is known."""
        whole = self._whole()
        ends = [
            self.arrivals[key] + account.queued_s + account.wall_s
            for key, account in whole.items()
            if key in self.arrivals
        ]
        foreign = any(account.answered for account in whole.values())
        return max(ends, default=self.seconds if foreign else self.rounds_s + self.prefills_s + self.captures_s)

    def _in_all(self) -> dict[str, Any]:
        """What all texts come to, by the names of a record."""
        whole, time_s = self._whole(), self._time_s()
        tokens = sum(account.new_tokens for account in whole.values())
        if not (self.rounds_s or any(account.answered for account in whole.values())):
            return {}
        totals = {"e2e_throughput_tps": tokens / time_s}
        if self.rounds_s:
            totals["throughput_tps"] = tokens / self.rounds_s
        if gaps := sorted(gap for account in whole.values() for gap in account.gaps_s):
            totals["gap_p99_ms"] = gaps[math.ceil(0.99 * len(gaps)) - 1] * 1e3
        if slo := self.setting.plan.slo:
            met = sum(slo.met((account.queued_s + account.ttft_s) * 1e3, account.tpot_ms) for account in whole.values())
            totals["goodput_rps"] = met / time_s
        return totals


class _TextQueue:
    """The prompts that are to be answered next: it is empty while those under way may bring more."""

    def __init__(self, run: ConfigurationRun, watcher: Watcher) -> None:
        self._run, self._watcher = run, watcher
        first = run.turns[0]
        self._next = deque(
            (conversation, self._place(conversation, first))
            for conversation in run.conversations
            if conversation.error_at(first) is None
        )
        self._load = run.setting.load
        self._chance = random.Random(f"{run.setting.seeded.seed} {self._load.rate if self._load else None}")
        self._arrived_s = 0.0

    def __iter__(self) -> "_TextQueue":
        return self

    def __next__(self) -> Text:
        while self._next:
            conversation, place = self._next.popleft()
            try:
                return self._text(conversation, place)
            except Exception as error:
                self.failed(conversation, place, _told(error, f"prompt {place.prompt.id}"))
        raise StopIteration

    def answered(self, conversation: Conversation, place: PlannedGeneration) -> bool:
        """Ask for the next turn of a conversation, where it is played here; whether the answer could be read."""
        run, turn = self._run, place.turn + 1
        try:
            conversation.answered(run.setting.engine.text(run.accounts[place.key].output_ids))
        except Exception as error:
            self.failed(conversation, place, _told(error, f"the answer to prompt {place.prompt.id}"))
            return False
        if turn in run.turns and turn <= len(conversation.prompt.turns):
            self._next.append((conversation, self._place(conversation, turn)))
        return True

    def failed(self, conversation: Conversation, place: PlannedGeneration, error: str) -> None:
        """A text has no answer."""
        conversation.fail(place.turn, error)
        self._watcher.failed(place, error)

    def fail(self, error: str) -> None:
        """Nothing more will be answered."""
        for conversation, place in self._run.generations():
            account = self._run.accounts.get(place.key)
            if conversation.error_at(place.turn) is None and (account is None or account.finish_reason is None):
                self.failed(conversation, place, error)

    def _place(self, conversation: Conversation, turn: int) -> PlannedGeneration:
        return self._run.setting.place(conversation.prompt, turn, self._run.configuration)

    def _text(self, conversation: Conversation, place: PlannedGeneration) -> Text:
        """A prompt as it is asked. Raises `UserError` for one that cannot be. The first one starts the clock."""
        run, prompt, key = self._run, place.prompt, place.key
        engine, values = run.setting.engine, {**run.setting.values(prompt), **dict(run.configuration.parameters)}
        ids = engine.tokenise(conversation.ask(place.turn), values["chat"], prompt.system, TemplateVariables.of(values))
        if self._load is not None:
            check_room(run.setting.begun, ids, values["length"])
        run.accounts[key], run.prompts[key] = RunMetrics(), list(ids)
        self._watcher.prompted(place, engine, values, ids)
        if self._load is not None and self._load.rate is not None and place.turn == 1:
            self._arrived_s += self._chance.expovariate(self._load.rate)
            run.arrivals[key] = self._arrived_s
        run.begun = run.begun or time.perf_counter()
        return Text((conversation, place), ids, values["length"], run.arrivals.get(key), values["grammar"])


def _told(error: Exception, what: str) -> str:
    """What a record says of an error; the traceback of a bug goes to the log."""
    if not isinstance(error, UserError):
        _log.error("%s failed", what, exc_info=error)
    return FailedText.of(error).error
