"""The paper's two networks take a few steps of their presets, with a small batch and made-up images."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from quietnn.experiments.config import load_config
from quietnn.experiments.noisy_training import NoisyTraining
from quietnn.federated.devices import DeviceData
from quietnn.federated.rounds import Federation, ServerState, run_round
from quietnn.federated.schemes import SCHEMES
from quietnn.federated.tasks import NETWORKS
from quietnn.tasks.cifar10_task import CIFAR10
from quietnn.weights import noisy_names


@pytest.mark.parametrize("network", ["resnet18", "shufflenetv2"])
def test_a_round_at_full_scale(network: str) -> None:
    config = load_config(NoisyTraining, Path(f"federated-paper-{network}"))
    training = replace(config, num_epochs=1, batch_size=2, num_active=2)
    generator = torch.Generator().manual_seed(0)
    devices = {
        device: DeviceData(
            torch.randint(0, 256, (4, 3, 32, 32), generator=generator, dtype=torch.uint8),
            torch.randint(0, 10, (4,), generator=generator),
            CIFAR10,
        )
        for device in range(2)
    }
    federation = Federation(devices, training, config.air(-10.0), SCHEMES["mmse_layerwise"])
    torch.manual_seed(0)
    model = NETWORKS[network]()
    before = ServerState.initial(model)
    after, record = run_round(federation, model, before)
    assert after.num_rounds_done == 1
    assert record["devices"] == [0, 1]
    for name in noisy_names(model):
        assert torch.isfinite(after.state[name]).all()
    assert not torch.equal(after.state["conv1.weight"], before.state["conv1.weight"])
