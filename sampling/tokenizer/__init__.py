"""From text to ids and back, and from messages to text: the contract, and our own for what we convert."""
