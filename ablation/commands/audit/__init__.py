"""The command `audit`: what is asked of which engine, and how its answers are shown."""
