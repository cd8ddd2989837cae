"""Training of drafters: data that the target writes itself, losses, and a loop that resumes."""
