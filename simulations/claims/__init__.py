"""Claims that need real models or training: one module each, like `scalevec_theory.theorems`."""
