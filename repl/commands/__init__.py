"""What can be typed: the table of commands, their handlers, help and completion."""
