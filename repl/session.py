"""The state of an interactive session. Nothing is rendered here."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ablation.plan.grid import Configuration
from ablation.run.dialogue import DialogueHistory
from repl.answers import Answers
from repl.costs import Costs
from repl.files.runs import Run, called
from repl.loading import Loading
from repl.own_settings import DEFAULT, OWN, REFERENCE_TURNS, STATE, TURNS
from repl.start import StartSettings, decide
from sampling.methods.chat_template import KWARGS, THINKING, TemplateVariables
from sampling.methods.parameters import GAMMA
from sampling.methods.rules import DRAFT_RULE
from sampling.methods.settings import PARAMETERS, Settings
from sampling.methods.tables import AR, METHODS
from utils.errors import UserError

if TYPE_CHECKING:
    from repl.exchange import Exchange
    from sampling.loading.options import LoadOptions
    from sampling.pair.local_engine import LocalEngine


class Session:
    """Settings, the engine once it is loaded, the dialogue, and what was answered.

    `chosen`: names of the settings that the user has set, which no pair and no card decides. `added`: runs
    beside the methods that are on, by name. `start`: what the pair decided, once it is known. `greeted`: the
    user was told. `own`: settings of the session alone. `log`: every prompt with its answers, for /export. `costs`:
    what rounds cost here.
    """

    def __init__(self, loading: Loading) -> None:
        self.loading = loading
        self.settings = Settings()
        self.own: dict[str, Any] = {name: parameter.default for name, parameter in OWN.items()}
        self.dialogue = DialogueHistory()
        self.dialogues = 0
        self.log: list[Exchange] = []
        self.chosen: set[str] = set()
        self.added: dict[str, Configuration] = {}
        self.start: StartSettings | None = None
        self.greeted = False
        self.answers: Answers | None = None
        self.costs = Costs(loading)

    @property
    def engine(self) -> "LocalEngine":
        """The engine; waits for it. Raises the `UserError` that loading ended with."""
        engine = self.loading.engine()
        self.settle()
        return engine

    @property
    def notes(self) -> tuple[str, ...]:
        """What was mended at load, and what had to be switched off."""
        pair, start = self.loading.pair, self.start
        return (*pair.notes, *start.notes) if pair is not None and start is not None else ()

    def settle(self) -> None:
        """Let the pair decide what the user has not, as soon as it is loaded."""
        pair = self.loading.pair
        if pair is not None and self.start is None:
            self.start = decide(pair, self.settings, self.chosen)
            self.settings.assign_all(self.start.settings.items())

    def load(self, options: "LoadOptions") -> None:
        """Load other models; settings that the pair had decided are open again. Raises `UserError`, as `Loading.again`.

        What was answered stays for /export; a dialogue does not go on with another model.
        """
        self.loading.again(options)
        self.costs.end()
        for name in self.start.settings if self.start is not None else ():
            if name not in self.chosen:
                self.settings.assign(name, PARAMETERS[name].show(PARAMETERS[name].default))
        self.start, self.greeted, self.answers = None, False, None
        self.new_dialogue()
        self.costs = Costs(self.loading)

    def choose(self, texts: Mapping[str, str], runs: "Sequence[Configuration]") -> None:
        """What a command line asks for: settings by name, and what answers a prompt in place of what is on at start."""
        self.assign_all(list(texts.items()))
        if runs:
            on = {run.method for run in runs if not run.parameters}
            self.assign_all([(name, "on" if name in on else "off") for name in METHODS])
            self.added.update((run.name, run) for run in runs if run.parameters)

    def memories(self) -> list[tuple[str, str]]:
        """What each method keeps in memory, once something ran."""
        return self.engine.memories() if self.loading.pair is not None else []

    def show(self, name: str) -> str:
        """A setting's value as text that `assign` takes back."""
        return OWN[name].show(self.own[name]) if name in OWN else self.settings.show(name)

    def at_start(self, name: str) -> str:
        """A setting's value as text before the user changed anything: the pair's, or the default."""
        parameter = STATE[name]
        decided = self.start.settings if self.start is not None else {}
        return decided.get(name, parameter.show(parameter.default))

    def assign(self, name: str, text: str) -> None:
        """Set a setting from text, `default` as it was at start. Raises `UserError`, and then nothing has changed."""
        if name in OWN:
            self.own[name] = OWN[name].default if text == DEFAULT else OWN[name].parse(text)
        elif text == DEFAULT:
            self.settings.assign(name, self.at_start(name))
            self.chosen.discard(name)
        else:
            self.assign_all([(name, text)])

    def assign_all(self, changes: Sequence[tuple[str, str]]) -> None:
        """Set settings as one, as `Settings.assign_all`; the user has chosen them."""
        self._refuse_unread(dict(changes))
        self.settings.assign_all(changes)
        self.chosen.update(name for name, _ in changes)

    def _refuse_unread(self, texts: Mapping[str, str]) -> None:
        """Raises `UserError` for a variable that the loaded model's chat template does not read."""
        given = {p.name: p.parse(texts[p.name]) for p in (THINKING, KWARGS) if p.name in texts}
        if given and self.loading.pair is not None:
            self.loading.pair.template_values(TemplateVariables.of(given))

    def runs(self) -> list[Run]:
        """What answers a prompt: each method that is on, and what was added, in the order of the methods."""
        runs_there = []
        for method in METHODS:
            configurations = [Configuration(method)] if self.settings[method] else []
            configurations += [configuration for configuration in self.added.values() if configuration.method == method]
            runs_there += [
                Run(configuration, called(configuration, self.settings), self._recommended(configuration))
                for configuration in configurations
            ]
        return runs_there

    def weighs_costs(self) -> bool:
        """Whether what answers a prompt reads what rounds cost, which is then measured before."""
        return any(METHODS[run.method].weighs_costs({**self.settings, **run.parameters}) for run in self.runs())

    def _recommended(self, configuration: Configuration) -> dict[str, Any]:
        """What the card of its drafter says, where neither the user nor the run says anything."""
        if self.start is None:
            return {}
        settings = dict(configuration.parameters)
        method = METHODS[configuration.method]
        card = self.start.cards.get(method.needs({**self.settings, **settings}) or "", {})
        given = {*self.chosen, *settings}
        open_ = {name: value for name, value in card.items() if name not in given}
        if GAMMA.name in given:  # who gives a length wants that length
            open_.pop(DRAFT_RULE.name, None)
        read = {parameter.name for parameter in method.relevant({**self.settings, **open_, **settings})}
        return {name: value for name, value in open_.items() if name in read}

    def ask(self, prompt: str) -> Answers:
        """A prompt for every run; waits for the models. Raises `UserError`."""
        engine = self.engine
        runs = self.refuse_nothing()
        from sampling.measure.comparison import Comparison

        turns = self.own[TURNS.name] != TURNS.default
        if not turns:
            self.new_dialogue()
        self.dialogue.begin(prompt)
        leader = AR if self.own[TURNS.name] == REFERENCE_TURNS else None
        heard, variables = self.dialogue.heard, TemplateVariables.of(self.settings)
        prompts = {
            run.name: engine.tokenise(heard(run.name, leader), self.settings["chat"], None, variables) for run in runs
        }
        self._refuse_overflow(engine, prompts)
        first = self.answers is None
        self.dialogues += len(self.dialogue.turns) == 1
        comparison = Comparison(engine, {**self.settings, **self._prefixes(turns)})
        if len(self.dialogue.turns) > 1 and self.answers is not None:
            comparison.before = self.answers.comparison.spoken()
        self.answers = Answers(engine, comparison, runs, prompts, self.dialogue, first)
        return self.answers

    def _prefixes(self, turns: bool) -> dict[str, bool]:
        """Turns of a dialogue go on from kept rows, where the user has not chosen otherwise."""
        return {"prefix_cache": True} if turns and "prefix_cache" not in self.chosen else {}

    def new_dialogue(self) -> None:
        """The next prompt is the first of its dialogue."""
        self.dialogue = DialogueHistory()

    def _refuse_overflow(self, engine: "LocalEngine", prompts: Mapping[str, Sequence[int]]) -> None:
        """Raises `UserError` where a dialogue has become too long; an encoder has a window of its own."""
        longest, about = max(map(len, prompts.values())), engine.describe()
        if len(self.dialogue.turns) > 1 and longest >= about.window and not about.encoder:
            raise UserError(
                f"the dialogue has {longest:,} tokens with this prompt; the context window of {about.window:,} leaves "
                "no room for an answer. /new begins another dialogue"
            )

    def refuse_nothing(self) -> list[Run]:
        """What answers a prompt; asked before loading too, so that nobody waits for a refusal. Raises `UserError`."""
        runs = self.runs()
        if not runs:
            why = "".join(f" ({note})" for note in self.notes)
            raise UserError(f"no method is on; switch one on with {', '.join(f'/{name} on' for name in METHODS)}{why}")
        if self.own[TURNS.name] == REFERENCE_TURNS and not self.settings[AR]:
            raise UserError(
                "turns reference: AR is off; switch it on (/target on), or use /turns on for separate answers"
            )
        return runs
