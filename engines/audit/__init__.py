"""Whether another engine keeps the law of the target: what is asked, what is expected, and how answers are judged."""
