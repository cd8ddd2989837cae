"""Model families built tiny, run against transformers' own generate, and told on docs/models.md."""
