"""How much a micro-batch takes, and when the next one begins."""
