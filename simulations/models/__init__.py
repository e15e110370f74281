"""Real models: find their norm scales, fold, attach, decay and predict them."""

from simulations.models.attach import attach, detach, merge
from simulations.models.folding import fold, unfold, untie
from simulations.models.groups import iwd_param_groups, split_for_muon
from simulations.models.prediction import predict_norms
from simulations.models.scales import multipliers
from simulations.models.trace import trace

__all__ = [
    "attach",
    "detach",
    "fold",
    "iwd_param_groups",
    "merge",
    "multipliers",
    "predict_norms",
    "split_for_muon",
    "trace",
    "unfold",
    "untie",
]
