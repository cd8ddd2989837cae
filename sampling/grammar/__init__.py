"""Grammars that constrain a text: which tokens may follow, along every path of drafts, and which one must."""
