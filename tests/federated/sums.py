"""A small state dict, the updates of some devices, and what a server makes of them."""

import math

import torch
from torch import Tensor, nn

from quietnn.channels.awgn import AWGN
from quietnn.federated.air import Air
from quietnn.federated.devices import DeviceData
from quietnn.federated.estimators import Affine, Estimator
from quietnn.federated.rounds import Federation, ServerState, aggregate
from quietnn.federated.settings import FederationSettings
from quietnn.repairs.affine import ML

NOISY = ("a.weight", "a.bias", "b.weight")


def state() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "a.weight": torch.randn(50, 40, generator=generator),
        "a.bias": torch.randn(50, generator=generator),
        "bn.weight": torch.ones(50),
        "bn.running_mean": torch.zeros(50),
        "bn.num_batches_tracked": torch.tensor(7),
        "b.weight": torch.randn(10, 50, generator=generator),
    }


def updates(num_devices: int = 4) -> dict[int, dict[str, Tensor]]:
    scale = {"a.weight": 0.1, "a.bias": 0.1, "b.weight": 1.0}
    found = {}
    for device in range(num_devices):
        generator = torch.Generator().manual_seed(100 + device)
        found[3 * device] = {
            name: torch.randn(tensor.shape, generator=generator) * scale.get(name, 1.0)
            if tensor.is_floating_point()
            else torch.tensor(5)
            for name, tensor in state().items()
        }
    return found


NOBODY = DeviceData(torch.empty(0), torch.empty(0), nn.Identity())


def federation(estimator: Estimator, wnr_db: float, *, told: bool = False, **rest: object) -> Federation:
    devices, settings = dict.fromkeys(range(10), NOBODY), FederationSettings(told=told)
    return Federation(devices, settings, Air(AWGN(wnr_db=wnr_db)), estimator, seed=9, **rest)  # type: ignore[arg-type]


def run(estimator: Estimator, wnr_db: float = math.inf, *, number: int = 2, **rest: object) -> dict[str, Tensor]:
    after, _ = aggregate(federation(estimator, wnr_db, **rest), ServerState(number, state()), updates(), noisy=NOISY)
    assert after.num_rounds_done == number + 1
    return after.state


def error(new: dict[str, Tensor]) -> float:
    clean = run(Affine(ML))
    return sum(float((new[name] - clean[name]).square().sum()) for name in NOISY)
