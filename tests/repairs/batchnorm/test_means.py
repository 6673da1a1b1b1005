"""The clean means tell the noise along the mean patch, and no more is taken out of the weights than they tell."""

import copy

import torch
from torch import Tensor, nn

import quietnn
from quietnn.repairs.batchnorm.means import Shift, take_out
from quietnn.watching.samples import Visit
from quietnn.watching.visits import visit_batch_norms


def _stack(*, groups: int = 1) -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(3):
        layers += [nn.Conv2d(8, 8, 3, padding=1, groups=groups, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*layers)


def _settled(network: nn.Module, images: Tensor) -> nn.Module:
    return quietnn.repair(network.eval(), images, method="re_estimated", noise_variance=1e-6).model


def test_the_weights_come_closer_to_the_clean_ones_along_what_they_are_given() -> None:
    images = torch.rand(200, 8, 6, 6, generator=torch.Generator().manual_seed(1)) + 1.0
    network = _settled(_stack(), images)
    received = quietnn.transmit(network, wnr_db=0.0, seed=3)
    plain, told = (
        quietnn.calibrate_structured(received, images, by_means=by_means).model for by_means in (False, True)
    )
    first, clean = images.mean((0, 2, 3))[:, None, None].expand(8, 3, 3), network[0].weight
    errors = [((one[0].weight - clean) * first).detach().sum((1, 2, 3)) for one in (plain, told)]
    error = [float(one.square().mean()) for one in errors]
    assert error[1] < 0.2 * error[0]


def test_groups_have_patches_of_their_own_and_a_patch_of_zeros_changes_nothing() -> None:
    network = _stack(groups=8)
    images = torch.rand(20, 8, 6, 6, generator=torch.Generator().manual_seed(1))
    images[:, 0] = 0.0
    seen: list[Visit] = []

    def rule(visit: Visit) -> tuple[Tensor, Tensor]:
        if not seen:
            seen.append(visit)
            assert visit.patches.entries.shape == (8, 9)
        return visit.mean, visit.variance

    visit_batch_norms(network.eval(), quietnn.Evidence(images), rule)
    layer = copy.deepcopy(network[0])
    outputs = layer(images).mean((0, 2, 3))
    take_out([Shift(layer, outputs.detach().double(), seen[0].patches.entries)])
    assert torch.allclose(layer(images).mean((0, 2, 3)), torch.zeros(8), atol=1e-6)
    assert torch.equal(layer.weight[0], network[0].weight[0])


def test_without_noise_no_weight_changes() -> None:
    images = torch.rand(20, 8, 6, 6, generator=torch.Generator().manual_seed(1))
    network = _stack().eval()
    found = quietnn.calibrate_structured(network, images, noise_variance=0.0)
    assert found.passes == 2.0
    assert all(torch.equal(one, found.model.state_dict()[name]) for name, one in network.state_dict().items())


def test_dead_channels_stay_finite() -> None:
    images = torch.rand(30, 8, 6, 6, generator=torch.Generator().manual_seed(1))
    network = _stack()
    with torch.no_grad():
        network[0].weight[:4] = 0.0
        network[1].weight[:6] = 0.0
        network[1].bias[:6] = -1.0
    received = quietnn.transmit(_settled(network, images), wnr_db=-6.0, seed=0)
    found = quietnn.calibrate_structured(received, images).model
    assert all(bool(torch.isfinite(tensor).all()) for tensor in found.state_dict().values())


def test_weights_that_two_calls_share_are_corrected_once() -> None:
    layer = nn.Linear(2, 1, bias=False)
    before = layer.weight.detach().clone()
    shift = Shift(layer, torch.tensor([1.0]), torch.tensor([[0.0, 2.0]]))
    take_out([shift, shift])
    assert torch.allclose(layer.weight, before - torch.tensor([[0.0, 0.5]]))
