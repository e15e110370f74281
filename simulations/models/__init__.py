"""Real models: find their norm scales, fold, attach, decay and predict them."""
