"""One step of each optimizer on a batch of tensors, in the order of operations of torch.optim."""

from __future__ import annotations

import torch
from torch import Tensor

from scalevec_theory.optimizers import SGD, Adam, Lion, Muon, Optimizer, RMSProp

State = dict[str, Tensor]


def initial_state(optimizer: Optimizer, w: Tensor) -> State:
    """The optimizer's buffers, all zero.  SGD's momentum buffer then starts at the first gradient, as torch's does."""
    names = {Adam: ("mean", "square"), RMSProp: ("square",)}
    kept = next((names[kind] for kind in names if isinstance(optimizer, kind)), ("mean",))
    return {name: torch.zeros_like(w) for name in kept}


def update(optimizer: Optimizer, state: State, w: Tensor, g: Tensor, t: int, lr: float, weight_decay: float) -> None:
    """Step t (1, 2, …) with gradient ``g`` of the shape of ``w``; changes ``w`` and ``state``.

    Muon takes the last two dimensions for its matrices.
    """
    if weight_decay != 0:
        if optimizer.coupled:
            g = g.add(w, alpha=weight_decay)
        else:
            w.mul_(1 - lr * weight_decay)
    if isinstance(optimizer, Adam):
        beta1, beta2 = optimizer.betas
        state["mean"].lerp_(g, 1 - beta1)
        state["square"].mul_(beta2).addcmul_(g, g, value=1 - beta2)
        denominator = (state["square"].sqrt() / (1 - beta2**t) ** 0.5).add_(optimizer.eps)
        w.addcdiv_(state["mean"], denominator, value=-lr / (1 - beta1**t))
    elif isinstance(optimizer, RMSProp):
        state["square"].mul_(optimizer.alpha).addcmul_(g, g, value=1 - optimizer.alpha)
        w.addcdiv_(g, state["square"].sqrt().add_(optimizer.eps), value=-lr)
    elif isinstance(optimizer, SGD):
        mean = state["mean"].mul_(optimizer.momentum).add_(g)
        w.add_(g.add(mean, alpha=optimizer.momentum) if optimizer.nesterov else mean, alpha=-lr)
    elif isinstance(optimizer, Lion):
        beta1, beta2 = optimizer.betas
        w.add_(state["mean"].lerp(g, 1 - beta1).sign_(), alpha=-lr)
        state["mean"].lerp_(g, 1 - beta2)
    else:
        momentum: float = optimizer.momentum  # type: ignore[attr-defined]
        mean = state["mean"].lerp_(g, 1 - momentum)
        if isinstance(optimizer, Muon):
            mean = g.lerp(mean, momentum) if optimizer.nesterov else mean
            w.add_(orthogonal_factor(mean, optimizer.ns_steps), alpha=-lr * optimizer.lr_factor(*w.shape[-2:]))
        else:
            w.add_(mean.sign(), alpha=-lr)


def orthogonal_factor(matrices: Tensor, ns_steps: int) -> Tensor:
    """U Vᵀ of matrices U S Vᵀ ``(..., c, d)``: exact for 0 steps, else by Newton–Schulz in bfloat16 as torch's."""
    if ns_steps == 0:
        U, _, Vh = torch.linalg.svd(matrices, full_matrices=False)
        return U @ Vh
    a, b, c = Muon.NS
    tall = matrices.shape[-2] > matrices.shape[-1]
    X = (matrices.mT if tall else matrices).bfloat16()
    X = X.reshape(-1, *X.shape[-2:])
    X = X / X.flatten(1).norm(dim=1).clamp(min=1e-7)[:, None, None]
    for _ in range(ns_steps):
        gram = X @ X.mT
        X = torch.baddbmm(X, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), X, beta=a)
    return (X.mT if tall else X).reshape(matrices.shape).to(matrices.dtype)
