"""The training lab: small language models, their data and their training."""
