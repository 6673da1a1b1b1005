"""Networks that compute as analog chips do, and aihwkit's own forward pass beside them."""

import copy
import pickle
from typing import Any

import pytest
import torch
from tests.analog.conftest import images
from torch import Tensor, nn

import quietnn
from quietnn.analog.converter import Converter
from quietnn.analog.hardware import arrays, on_hardware
from quietnn.errors import InvalidConfig, QuietnnError

EXACT = Converter(input_bits=0, output_bits=0, input_range=0.0, output_range=0.0, output_noise=0.0)
WIDE = Converter(input_bits=0, output_bits=0, input_range=100.0, output_range=1e6, output_noise=0.3)


def test_without_rounding_and_noise_it_computes_as_before() -> None:
    model, inputs = images(), torch.randn(5, 3, 4, 4)
    assert torch.allclose(on_hardware(model, EXACT)(inputs), model(inputs), atol=1e-6)


def test_the_network_itself_stays_as_it_is(network: nn.Module) -> None:
    before = network(torch.ones(2, 8))
    chip = on_hardware(network)
    assert torch.equal(network(torch.ones(2, 8)), before)
    assert [*chip.state_dict()] == [*network.state_dict()]
    assert type(chip[0]) is nn.Linear


def test_runs_repeat_and_calls_differ(network: nn.Module) -> None:
    inputs = torch.randn(4, 8)
    first, second = on_hardware(network, seed=2), on_hardware(network, seed=2)
    made = first(inputs), first(inputs)
    assert torch.equal(made[0], second(inputs))
    assert torch.equal(made[1], second(inputs))
    assert not torch.equal(made[0], made[1])
    assert not torch.equal(on_hardware(network, seed=3)(inputs), made[0])


def test_copies_are_on_hardware_of_their_own(network: nn.Module) -> None:
    chip = on_hardware(network)
    for copied in (copy.deepcopy(chip), pickle.loads(pickle.dumps(chip))):
        assert arrays(copied)["0"].layer is copied[0]
        copied[0].weight.data.zero_()
        assert chip[0].weight.abs().sum() > 0


def test_outputs_have_the_noise_that_was_asked_for() -> None:
    layer = nn.Linear(4, 3, bias=False)
    inputs = torch.zeros(20_000, 4)
    noise = on_hardware(layer, WIDE)(inputs)
    expected = 0.3 * 100.0 * layer.weight.abs().amax(dim=1)
    assert torch.allclose(noise.std(dim=0), expected, rtol=0.03)
    assert torch.allclose(arrays(on_hardware(layer, WIDE))[""].noise_variance(inputs[:1])[0], expected.square())


def test_read_noise_grows_with_weights_and_inputs() -> None:
    layer = nn.Linear(2, 1, bias=False)
    layer.weight.data = torch.tensor([[1.0, -0.25]])
    chip = on_hardware(layer, Converter(0, 0, 2.0, 1e3, output_noise=0.0, read_noise=0.1))
    made = chip(torch.tensor([[1.0, 2.0]]).repeat(20_000, 1)).detach()
    variance = (2.0 * 0.1) ** 2 * (1.0 * 0.5**2 + 0.25 * 1.0**2)
    assert float(made.var()) == pytest.approx(variance, rel=0.04)
    assert float(made.mean()) == pytest.approx(0.5, abs=0.01)


def test_gradients_pass_rounding_and_stop_at_the_ends() -> None:
    layer = nn.Linear(1, 1, bias=False)
    layer.weight.data.fill_(1.0)
    chip = on_hardware(layer, Converter(3, 3, input_range=1.0, output_range=2.0, output_noise=0.0))
    inputs = torch.tensor([[0.4], [1.5]], requires_grad=True)
    chip(inputs).sum().backward()
    assert inputs.grad is not None
    assert inputs.grad.flatten().tolist() == [1.0, 0.0]


def test_names_and_shapes_that_do_not_fit(network: nn.Module) -> None:
    with pytest.raises(InvalidConfig, match=r"ranges names 'head'.*0"):
        on_hardware(network, ranges={"head": 1.0})
    with pytest.raises(InvalidConfig, match="it must be positive"):
        on_hardware(network, ranges={"0": 0.0})
    with pytest.raises(InvalidConfig, match="16 positive numbers"):
        on_hardware(network, units={"0.weight": torch.ones(7)})
    with pytest.raises(InvalidConfig, match="no linear or convolution"):
        on_hardware(nn.ReLU())
    with pytest.raises(QuietnnError, match="not on hardware"):
        arrays(network)


def test_repairs_take_such_a_network(network: nn.Module, examples: tuple[Tensor, Tensor]) -> None:
    chip = on_hardware(quietnn.transmit(network, wnr_db=3.0, seed=0).received, "7-9-bit")
    made = quietnn.posterior(chip, *examples, wnr_db=3.0)
    assert arrays(made.model)["0"].layer is made.model[0]
    losses = [nn.functional.cross_entropy(one(examples[0]), examples[1]) for one in (made.model, chip)]
    assert losses[0] < losses[1]


def config_of(noise: float, *, tile: int) -> Any:
    from aihwkit.simulator.configs import TorchInferenceRPUConfig
    from aihwkit.simulator.parameters.enums import BoundManagementType, NoiseManagementType
    from aihwkit.simulator.presets.utils import StandardIOParameters

    config = TorchInferenceRPUConfig()
    config.forward = StandardIOParameters(
        bound_management=BoundManagementType.NONE, noise_management=NoiseManagementType.NONE, out_noise=noise
    )
    config.mapping.weight_scaling_omega = 1.0
    config.mapping.weight_scaling_columnwise = True
    config.mapping.max_input_size, config.mapping.max_output_size = tile, 0
    config.pre_post.input_range.enable = True
    return config


@pytest.mark.analog
@pytest.mark.parametrize("tile", [0, 40])
@pytest.mark.parametrize("kind", ["linear", "convolution"])
def test_without_noise_it_equals_aihwkit(kind: str, tile: int) -> None:
    from aihwkit.nn.conversion import convert_to_analog

    torch.manual_seed(0)
    linear, convolution = nn.Linear(90, 7), nn.Conv2d(10, 5, 3, stride=2, padding=1)
    layer: nn.Module = linear if kind == "linear" else convolution
    inputs = 2 * (torch.randn(30, 90) if kind == "linear" else torch.randn(3, 10, 8, 8))
    theirs = convert_to_analog(layer, config_of(0.0, tile=tile)).eval()
    ours = on_hardware(layer, Converter(output_noise=0.0, tile=tile))
    with torch.no_grad():
        assert torch.allclose(ours(inputs), theirs(inputs), atol=1e-6)
        assert not torch.allclose(ours(inputs), layer(inputs), atol=1e-3)


@pytest.mark.analog
def test_with_noise_it_has_the_moments_of_aihwkit() -> None:
    from aihwkit.nn.conversion import convert_to_analog

    torch.manual_seed(0)
    layer = nn.Linear(90, 4)
    inputs = torch.randn(1, 90).expand(20_000, 90)
    with torch.no_grad():
        theirs = convert_to_analog(layer, config_of(0.1, tile=0)).eval()(inputs)
        ours = on_hardware(layer, Converter(output_noise=0.1))(inputs)
    assert torch.allclose(ours.mean(dim=0), theirs.mean(dim=0), atol=2e-3)
    assert torch.allclose(ours.std(dim=0), theirs.std(dim=0), rtol=0.03)
