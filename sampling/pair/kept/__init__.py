"""What an engine and a pair keep from one prompt to the next: drafters with a memory, and heads as they were laid out."""
