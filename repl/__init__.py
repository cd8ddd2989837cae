"""The interactive session: commands, state, prompt, live view."""
