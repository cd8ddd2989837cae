"""Dialogues by the thousand on a card: all texts stand at the same place."""
