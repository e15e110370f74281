"""The Mamba-2 mixer: a causal convolution, then a linear recurrence whose decay depends on the input.

The recurrence h_t = e^{Δ_t A} h_{t−1} + Δ_t B_t x_tᵀ, y_t = C_tᵀ h_t + D x_t is computed chunk by chunk: inside a chunk
as a masked product like attention, between chunks through the state (Dao and Gu 2024, "Transformers are SSMs").
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from simulations.lm.architecture import Architecture

KERNEL = 4
CHUNK = 64


class Mixer(nn.Module):
    """``(B, T, width)`` to the same; gated by silu, no norm inside."""

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.heads, self.head_dim, self.groups, self.state = a.mixer_heads, a.mixer_head_dim, a.mixer_groups, a.state
        self.inner = self.heads * self.head_dim
        self.convolved = self.inner + 2 * self.groups * self.state
        self.into = nn.Linear(a.width, self.inner + self.convolved + self.heads, bias=False)
        self.convolution = nn.Conv1d(self.convolved, self.convolved, KERNEL, groups=self.convolved, padding=KERNEL - 1)
        self.step_bias = nn.Parameter(torch.ones(self.heads))
        self.log_decay = nn.Parameter(torch.arange(1.0, self.heads + 1).log())
        self.skip = nn.Parameter(torch.ones(self.heads))
        self.out = nn.Linear(self.inner, a.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        B, T, _ = x.shape
        gate, mixed, step = self.into(x).split([self.inner, self.convolved, self.heads], -1)
        mixed = F.silu(self.convolution(mixed.transpose(1, 2))[..., :T]).transpose(1, 2)
        u, b, c = mixed.split([self.inner, self.groups * self.state, self.groups * self.state], -1)
        u = u.reshape(B, T, self.heads, self.head_dim)
        b, c = (
            part.reshape(B, T, self.groups, self.state).repeat_interleave(self.heads // self.groups, 2)
            for part in (b, c)
        )
        step = F.softplus(step + self.step_bias)
        y = scan(step[..., None] * u, -step * self.log_decay.exp(), b, c) + self.skip[:, None] * u
        return self.out(y.reshape(B, T, self.inner) * F.silu(gate))


def scan(u: Tensor, log_decay: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """y_t = Σ_{s ≤ t} (c_t · b_s) exp(Σ_{s < r ≤ t} log_decay_r) u_s, ``(B, T, H, P)``.

    Parameters
    ----------
    u : ``(B, T, H, P)``.
    log_decay : ``(B, T, H)``.
    b, c : ``(B, T, H, N)``.
    """
    state = u.new_zeros(u.shape[0], u.shape[2], b.shape[-1], u.shape[-1])
    found = []
    for part in range(0, u.shape[1], CHUNK):
        u_, b_, c_ = (x[:, part : part + CHUNK].transpose(1, 2) for x in (u, b, c))
        total = log_decay[:, part : part + CHUNK].transpose(1, 2).cumsum(-1)
        later = torch.ones(total.shape[-1], total.shape[-1], dtype=torch.bool, device=u.device).triu(1)
        decay = (total[..., :, None] - total[..., None, :]).masked_fill(later, -torch.inf).exp()
        inside = (c_ @ b_.transpose(-1, -2) * decay) @ u_
        found.append(inside + total.exp()[..., None] * (c_ @ state))
        left = (total[..., -1:] - total).exp()
        state = total[..., -1, None, None].exp() * state + (b_ * left[..., None]).transpose(-1, -2) @ u_
    return torch.cat(found, 2).transpose(1, 2)
