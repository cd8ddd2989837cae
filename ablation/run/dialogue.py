"""What was said in a conversation of several turns, by each of the runs that are compared."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DialogueTurn:
    """What the user said, and what each run answered, by its name.

    before: what had been said since the turn before, the same for all: user messages and their answers alternate.
    """

    prompt: str
    answers: dict[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()


@dataclass(slots=True)
class DialogueHistory:
    """The turns so far; a run answers the last one.

    Example: begin("a"), answered("x", "b"), begin("c") -> heard("x") is ["a", "b", "c"].
    """

    turns: list[DialogueTurn] = field(default_factory=list)

    def begin(self, prompt: str, before: tuple[str, ...] = ()) -> None:
        """The user's next turn, behind what was said `before`; one that nobody has answered is taken back."""
        if self.turns and not self.turns[-1].answers:
            self.turns.pop()
        self.turns.append(DialogueTurn(prompt, before=before))

    def answered(self, name: str, text: str) -> None:
        """A run's answer to the last turn."""
        self.turns[-1].answers[name] = text

    def heard(self, name: str, leader: str | None = None) -> list[str]:
        """What a run continues: user turns and answers alternate, the last turn is the user's.

        The answers are its own, or those of the `leader`; where there is none of either, the first that was given.
        """
        said = []
        for turn in self.turns[:-1]:
            who = next(role for role in (leader, name, *turn.answers) if role in turn.answers)
            said += [*turn.before, turn.prompt, turn.answers[who]]
        return [*said, *self.turns[-1].before, self.turns[-1].prompt]
