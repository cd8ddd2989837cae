"""What one configuration said about one prompt."""

from dataclasses import dataclass, field

from ablation.plan.prompts.file import Prompt
from ablation.run.dialogue import DialogueHistory


@dataclass(slots=True)
class Conversation:
    """A configuration's turns about a prompt, each on its own answers; once one has failed, there is no next.

    failed_at: the first turn that failed, from 1; None where none did. error: why.
    """

    configuration: str
    prompt: Prompt
    failed_at: int | None = None
    error: str = ""
    _dialogue: DialogueHistory = field(default_factory=DialogueHistory)

    def ask(self, turn: int) -> list[str]:
        """What the answer to a turn continues: user turns and answers alternate, the last turn is the user's."""
        self._dialogue.begin(self.prompt.turns[turn - 1], self.prompt.before(turn))
        return self._dialogue.heard(self.configuration)

    def answered(self, text: str) -> None:
        """The answer to the turn that was asked last."""
        self._dialogue.answered(self.configuration, text)

    def remember(self, turn: int, text: str, error: str | None) -> None:
        """A turn of an earlier run."""
        self.ask(turn)
        self.answered(text)
        if error is not None:
            self.fail(turn, error)

    def fail(self, turn: int, error: str) -> None:
        """It cannot go on from this turn on; the first error counts."""
        if self.failed_at is None:
            self.failed_at, self.error = turn, error

    def error_at(self, turn: int) -> str | None:
        """Why there is no answer to a turn; None where there is one."""
        return None if self.failed_at is None or turn < self.failed_at else self.error
