"""What each of two processes does that train a small model, plain, data-parallel and sharded."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from simulations.models.groups import ParamGroups, iwd_param_groups, split_for_muon

STEPS = 2


class Model(nn.Module):
    """Embedding, norm, a residual branch with a norm on its output, norm, head; a scalar multiplier of shape (1,)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(13, 6)
        self.norm = nn.RMSNorm(6)
        self.branch = nn.Sequential(nn.Linear(6, 10), nn.GELU(), nn.Linear(10, 6), nn.RMSNorm(6))
        self.last = nn.RMSNorm(6)
        self.head = nn.Linear(6, 13, bias=False)
        self.multiplier = nn.Parameter(torch.ones(1))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        x = x + self.multiplier * self.branch(self.norm(x))
        return self.head(self.last(x))


def train(model: nn.Module, groups: ParamGroups, tokens: Tensor) -> list[float]:
    """Losses before each step and after the last; the mean over the processes where there are several."""
    optimizer = torch.optim.AdamW(groups, lr=0.05)
    losses = []
    for step in range(STEPS + 1):
        logits = model(tokens)
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        losses.append(loss.detach().clone())
        if step < STEPS:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    together = torch.stack(losses)
    if len(tokens) == 1:
        dist.all_reduce(together)
        together /= dist.get_world_size()
    return together.tolist()


def muon_difference(
    model: nn.Module, mesh: DeviceMesh, groups: ParamGroups, tokens: Tensor, own: Tensor
) -> dict[str, float]:
    """By how much one step of Muon on shards differs from the same on whole matrices, relative to the step."""
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    sharded = copy.deepcopy(model)
    fully_shard(sharded.branch, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    steps = []
    for trained, bound, batch in ((model, groups, tokens), (sharded, groups.rebind(sharded), own)):
        muon, adamw = split_for_muon(bound)
        logits = trained(batch)
        trained.zero_grad()
        nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), batch[:, 1:].flatten()).backward()
        for optimizer in (torch.optim.Muon(muon, lr=0.05), torch.optim.AdamW(adamw, lr=0.05)):
            optimizer.step()
        named = {name: trained.get_parameter(name).detach() for name in muon.members}
        steps.append({n: (p.full_tensor() if isinstance(p, DTensor) else p) - start[n] for n, p in named.items()})
    whole, parts = steps
    return {name: float((parts[name] - step).norm() / step.norm()) for name, step in whole.items()}


def compare(folder: Path) -> None:
    """Write the losses and what else was found as JSON to the file ``RANK.json`` of a folder."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Model().double()
    tokens = torch.randint(13, (2, 9))
    own = tokens[rank : rank + 1]
    groups = iwd_param_groups(model, tokens, weight_decay=0.3)
    found: dict[str, object] = {"groups": str(groups)}
    plain = copy.deepcopy(model)
    found["plain"] = train(plain, groups.rebind(plain), tokens)

    parallel = DistributedDataParallel(copy.deepcopy(model))
    found["parallel"] = train(parallel, groups.rebind(parallel), own)

    mesh = init_device_mesh("cpu", (2,))
    fully_shard(model.branch, mesh=mesh)
    fully_shard(model, mesh=mesh)
    found["stale"] = [name for name, p in model.named_parameters() if any(p is q for g in groups for q in g["params"])]
    bound = groups.rebind(model)
    found["local"] = {name: list(p.to_local().shape) for name, p in model.named_parameters()}
    found["sharded"] = train(model, bound, own)

    found["muon"] = muon_difference(plain, mesh, groups.rebind(plain), tokens, own)

    scalar = nn.Module()
    scalar.multiplier = nn.Parameter(torch.ones(()))
    try:
        fully_shard(scalar, mesh=mesh)
    except ValueError as error:
        found["scalar"] = str(error)
    dist.destroy_process_group()
    (folder / f"{rank}.json").write_text(json.dumps(found))
