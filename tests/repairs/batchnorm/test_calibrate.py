"""Calibration of whole networks: exact without noise, right where the answer is known, and harmless."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from quietnn.channels.table import channel_named
from quietnn.channels.transmit import transmit
from quietnn.errors import InvalidConfig, InvalidWeights, QuietnnError
from quietnn.noise import NoiseVariance
from quietnn.observation import Observation, observe
from quietnn.repairs.affine import MMSE, AffineDenoiser
from quietnn.repairs.batchnorm.calibrate import calibrate, calibrate_structured, re_estimate
from quietnn.repairs.batchnorm.rule import CalibrationReport
from quietnn.repairs.batchnorm.weighing import Gap, Posterior, Prediction, posterior
from quietnn.repairs.denoise import denoise
from quietnn.repairs.grouped import GroupedWeights
from quietnn.targets import noisy_weights
from quietnn.watching.moments import ChannelMoments


class Block(nn.Module):
    """A residual block with depthwise and grouped parts, a normalised sum, and a shared BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.stem_bn = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.grouped = nn.Conv2d(8, 8, 1, groups=2)
        self.shared_bn = nn.BatchNorm2d(8)
        self.sum_bn = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 6)
        self.head_bn = nn.BatchNorm1d(6)

    def forward(self, images: Tensor) -> Tensor:
        x = functional.relu(self.stem_bn(self.stem(images)))
        y = functional.relu(self.shared_bn(self.depthwise(x)))
        y = functional.relu(self.shared_bn(self.grouped(y)))
        x = functional.relu(self.sum_bn(x + y))
        out: Tensor = self.head_bn(self.head(x.mean((2, 3))))
        return out


def trained(model: nn.Module, inputs: Tensor) -> nn.Module:
    """The model with running statistics of these inputs: what a sender would have."""
    model.train()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = None  # cumulative average
    with torch.no_grad():
        for batch in inputs.split(50):
            model(batch)
    return model.eval()


@pytest.fixture(scope="module")
def images() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    level = torch.randn(400, 3, 1, 1, generator=generator)
    return level + torch.randn(400, 3, 6, 6, generator=generator)


@pytest.fixture(scope="module")
def network(images: Tensor) -> nn.Module:
    torch.manual_seed(1)
    return trained(Block(), images)


def report_of(what: object, inputs: Tensor, **options: NoiseVariance) -> CalibrationReport:
    """How each layer was weighed."""
    report: CalibrationReport = calibrate(what, inputs, **options).details["report"]
    return report


def statistics(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return all(torch.equal(tensor, second[name]) for name, tensor in first.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_without_noise_every_statistic_comes_back_bit_for_bit(
    network: nn.Module, images: Tensor, dtype: torch.dtype
) -> None:
    model = copy.deepcopy(network).to(dtype)
    other_inputs = (2 * images[:20] + 1).to(dtype)  # far from what the statistics were taken over
    assert same(statistics(model), statistics(calibrate(model, other_inputs, noise_variance=0.0).model))


def test_a_single_channel_after_a_linear_layer_has_a_closed_form() -> None:
    """Mean: `k = p / max(p + s, d^2)`. Variance: `v + sigma^2 tr(C)`, for one channel cannot tell gap from change."""
    generator = torch.Generator().manual_seed(4)
    inputs = torch.randn(60, 5, generator=generator, dtype=torch.float64) + torch.arange(5)
    model = nn.Sequential(nn.Linear(5, 1), nn.BatchNorm1d(1)).double().eval()
    sigma2 = 0.03
    model[1].running_mean.fill_(0.4)
    model[1].running_var.fill_(1.7)
    with torch.no_grad():
        outputs = model[0](inputs)[:, 0]
    calibrated = calibrate(model, inputs, noise_variance=sigma2).model
    shift = sigma2 * (float((inputs.mean(0) ** 2).sum()) + 1)
    error = float(outputs.var()) / 60
    deviation = float(outputs.mean()) - 0.4
    weight = shift / max(shift + error, deviation**2)
    assert calibrated[1].running_mean.item() == pytest.approx(0.4 + weight * deviation, rel=1e-8)
    growth = sigma2 * float(inputs.var(0, correction=0).sum())
    assert calibrated[1].running_var.item() == pytest.approx(1.7 + growth, rel=1e-8)


def test_it_beats_both_clean_and_re_estimated_statistics_where_the_truth_is_known() -> None:
    """A linear layer on Gaussian inputs, 12 draws: squared errors against the moments of all inputs there are."""
    torch.manual_seed(0)
    factor = torch.randn(40, 40) / 40**0.5

    def draw(num: int) -> Tensor:
        return torch.randn(num, 40) @ factor + 0.3

    model = nn.Sequential(nn.Linear(40, 64, bias=False), nn.BatchNorm1d(64)).eval()
    weight = model[0].weight.detach().clone()
    covariance, mean = factor.T @ factor, torch.full((40,), 0.3)
    model[1].running_mean.copy_(weight @ mean)
    model[1].running_var.copy_((weight @ covariance * weight).sum(1))
    errors: dict[str, float] = dict.fromkeys(("clean", "plain", "calibrated"), 0.0)
    for seed in range(12):
        observation = transmit(model, wnr_db=3.0, seed=seed)
        noisy = observation.received[0].weight.detach()
        true_mean, true_variance = noisy @ mean, (noisy @ covariance * noisy).sum(1)
        inputs = draw(20)
        for name, candidate in (
            ("clean", model),
            ("plain", re_estimate(observation.received, inputs).model),
            ("calibrated", calibrate(observation, inputs).model),
        ):
            errors[name] += float(((candidate[1].running_mean - true_mean) ** 2 / true_variance).mean())
            errors[name] += float(((candidate[1].running_var / true_variance).log() ** 2).mean())
    assert errors["calibrated"] < 0.8 * min(errors["clean"], errors["plain"])


def test_one_forward_pass_is_made_after_one_over_two_inputs(network: nn.Module, images: Tensor) -> None:
    calls: list[tuple[str, int]] = []
    model = copy.deepcopy(network)
    for name, module in model.named_modules():
        module.register_forward_hook(lambda *args, name=name: calls.append((name, len(args[2]))))
    model(images[:2])
    model(images[:10])
    expected = list(calls)
    calls.clear()
    calibrate(model, images[:10], noise_variance=1e-3, in_place=True)
    assert calls == expected


def test_the_pass_already_sees_calibrated_statistics(network: nn.Module, images: Tensor) -> None:
    """Layer by layer: what comes out of the pass is what the finished network makes of the same inputs."""
    noisy = transmit(network, wnr_db=0.0, seed=0)
    outputs: list[Tensor] = []
    noisy.received.head_bn.register_forward_hook(lambda *args: outputs.append(args[2]))
    calibrated = calibrate(noisy, images[:40], in_place=True).model
    calibrated(images[:40])
    torch.testing.assert_close(outputs[-2], outputs[-1])


def test_nothing_but_running_statistics_changes_and_only_in_the_copy(network: nn.Module, images: Tensor) -> None:
    received = transmit(network, wnr_db=5.0, seed=0)
    before = statistics(received.received)
    result = calibrate(received, images[:50]).model
    assert same(before, statistics(received.received))
    changed = {name for name, tensor in statistics(result).items() if not torch.equal(tensor, before[name])}
    running = {name for name in before if name.endswith(("running_mean", "running_var"))}
    assert changed == {name for name in running if not name.startswith("shared_bn")}
    assert all(bool((tensor > 0).all()) for name, tensor in statistics(result).items() if name.endswith("running_var"))
    in_place = calibrate(received, images[:50], in_place=True).model
    assert in_place is received.received
    assert same(statistics(result), statistics(in_place))


def test_modes_stay_as_they_were_module_by_module(network: nn.Module, images: Tensor) -> None:
    model = copy.deepcopy(network).train()
    model.stem_bn.eval()  # a frozen BatchNorm in a network in training
    modes = [module.training for module in model.modules()]
    result = calibrate(model, images[:20], noise_variance=1e-3).model
    assert [module.training for module in model.modules()] == modes
    assert [module.training for module in result.modules()] == modes
    evaluated = calibrate(copy.deepcopy(network), images[:20], noise_variance=1e-3).model
    assert same(statistics(result), statistics(evaluated))


def test_frozen_parameters_are_calibrated_like_others(network: nn.Module, images: Tensor) -> None:
    frozen = copy.deepcopy(network).requires_grad_(False)
    results = [calibrate(model, images[:20], noise_variance=1e-3).model for model in (network, frozen)]
    assert same(statistics(results[0]), statistics(results[1]))


def test_the_report_names_who_feeds_whom_and_what_could_not_be_traced(network: nn.Module, images: Tensor) -> None:
    report = report_of(network, images[:50], noise_variance=1e-3)
    assert [(layer.name, layer.feeder) for layer in report.layers] == [
        ("stem_bn", "stem"),
        ("sum_bn", None),
        ("head_bn", "head"),
    ]
    assert report.shared == ("shared_bn",)
    upstream = [layer.upstream_share for layer in report.layers]
    assert upstream[0] == 0
    assert upstream == sorted(upstream)
    assert all(0 <= layer.mean_weight <= 1 for layer in report.layers)
    assert "layer in front unknown" in str(report).splitlines()[1]
    assert "called more than once" in str(report).splitlines()[3]


def test_a_layer_shared_by_two_places_feeds_both() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.first, self.second = nn.BatchNorm1d(4), nn.BatchNorm1d(4)

        def forward(self, x: Tensor) -> Tensor:
            first: Tensor = self.first(self.layer(x))
            second: Tensor = self.second(self.layer(first))
            return second

    report = report_of(Twice().eval(), torch.randn(30, 4), noise_variance=0.1)
    assert [layer.feeder for layer in report.layers] == ["layer", "layer"]


def test_a_batch_norm_shared_by_two_layers_does_no_harm_and_the_others_are_calibrated(images: Tensor) -> None:
    """Its statistics are those of a mixture; to draw each call towards them would be worse than to leave them."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
            self.shared, self.last, self.own = nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)

        def forward(self, x: Tensor) -> Tensor:
            for layer in (self.first, self.second):
                x = functional.relu(self.shared(layer(x)))
            return torch.as_tensor(self.own(self.last(x)))

    torch.manual_seed(0)
    clean = trained(Recurrent(), images)
    expected = clean(images)
    for seed in range(3):
        received = transmit(clean, wnr_db=0.0, seed=seed)
        result, structured = (verb(received, images[:100]).model for verb in (calibrate, calibrate_structured))
        assert torch.equal(result.shared.running_mean, clean.shared.running_mean)
        assert torch.equal(result.shared.running_var, clean.shared.running_var)
        errors = [functional.mse_loss(model(images), expected).item() for model in (received.received, result)]
        assert errors[1] < errors[0]
        assert same(statistics(structured), statistics(result)), "a scale that is lost would not be given back"


def test_how_a_layer_is_called_makes_no_difference(images: Tensor) -> None:
    class Keywords(nn.Sequential):
        def forward(self, input: Tensor) -> Tensor:
            for layer in self:
                input = layer(input=input)
            return input

    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)).eval()
    results = [calibrate(model, images[:30], noise_variance=0.01) for model in (plain, Keywords(*plain).eval())]
    assert [layer.feeder for layer in results[1].details["report"].layers] == ["0", "2"]
    assert same(*(statistics(result.model) for result in results))


def test_a_buffer_that_counts_calls_stays_as_it_was(images: Tensor) -> None:
    class Counting(nn.Sequential):
        def __init__(self, *layers: nn.Module) -> None:
            super().__init__(*layers)
            self.register_buffer("added", torch.zeros(()))
            self.register_buffer("replaced", torch.zeros(()))

        def forward(self, input: Tensor) -> Tensor:
            self.added += 1
            self.replaced = self.replaced + 1
            return torch.as_tensor(super().forward(input))

    model = Counting(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    for in_place in (False, True):
        result = calibrate(model, images[:30], noise_variance=0.01, in_place=in_place).model
        assert float(result.added) == float(result.replaced) == float(model.added) == float(model.replaced) == 0.0


def test_inference_mode_changes_nothing(network: nn.Module, images: Tensor) -> None:
    options = {"noise_variance": 0.01}
    for verb in (calibrate, calibrate_structured):
        expected = verb(network, images[:30], **options).model
        with torch.inference_mode():
            found = verb(network, images[:30].clone(), **options).model
        assert same(statistics(expected), statistics(found))
        assert not any(tensor.is_inference() for tensor in found.state_dict().values()), "it can be trained on"


def test_a_network_that_enters_inference_mode_itself_is_calibrated_without_knowing_who_feeds_whom(
    images: Tensor,
) -> None:
    class Deployed(nn.Sequential):
        @torch.inference_mode()
        def forward(self, input: Tensor) -> Tensor:
            return torch.as_tensor(super().forward(input))

    model = Deployed(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    report = report_of(model, images[:30], noise_variance=0.01)
    assert [layer.feeder for layer in report.layers] == [None]


def test_two_batch_norms_may_share_one_input_and_a_tensor_written_into_is_not_trusted() -> None:
    class Fork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.left, self.right, self.after = nn.BatchNorm1d(4), nn.BatchNorm1d(4), nn.BatchNorm1d(4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            out = self.left(y) + self.right(y)
            out = out + self.after(y.add_(1.0))
            return out

    report = report_of(Fork().eval(), torch.randn(30, 4), noise_variance=0.1)
    assert [layer.feeder for layer in report.layers] == ["layer", "layer", None]


def test_a_linear_layer_over_positions_is_not_taken_for_the_channels_in_front() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(3)).eval()
    report = report_of(model, torch.randn(30, 3, 4), noise_variance=0.1)
    assert report.layers[0].feeder is None


def test_a_clean_layer_in_front_of_the_noise_keeps_its_statistics(network: nn.Module, images: Tensor) -> None:
    noisy = [name for name in noisy_weights(network) if not name.startswith("stem")]
    result = calibrate(observe(network, noise_variance=0.01, noisy=noisy), images[:50]).model
    before, after = statistics(network), statistics(result)
    assert torch.equal(before["stem_bn.running_mean"], after["stem_bn.running_mean"])
    assert torch.equal(before["stem_bn.running_var"], after["stem_bn.running_var"])
    assert not torch.equal(before["head_bn.running_mean"], after["head_bn.running_mean"])


def test_scaled_weights_are_calibrated_to_scaled_statistics(images: Tensor) -> None:
    """BatchNorm undoes a scale, so whether weights were shrunk before makes no difference to the outputs."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        nn.BatchNorm2d(8, eps=1e-12),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=2),
        nn.BatchNorm2d(8, eps=1e-12),
    ).double()
    inputs = images.double()
    received = transmit(trained(model, inputs), wnr_db=2.0, seed=1)
    plain = calibrate(received, inputs[:60]).model
    by_group = GroupedWeights.of(noisy_weights(received.received), received.noise_variance, groups="layerwise")
    halved = dict.fromkeys(by_group.groups, AffineDenoiser(0.5, 0.0))
    shrunk = copy.deepcopy(received.received)
    by_group.estimate(halved, out=noisy_weights(shrunk))
    result = calibrate(
        shrunk, inputs[:60], noise_variance=received.noise_variance, denoisers=halved, groups="layerwise"
    ).model
    torch.testing.assert_close(result(inputs), plain(inputs), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["linear", "grouped"])
def test_an_offset_on_all_weights_moves_the_prediction_as_it_moves_the_outputs(kind: str, images: Tensor) -> None:
    """With all inputs and hardly any noise, statistics predicted through `rho` are those of the shifted layer."""
    torch.manual_seed(0)
    inputs = images.double() if kind == "grouped" else images.double().flatten(1)
    layer = nn.Conv2d(3, 6, 3, padding=1, groups=3) if kind == "grouped" else nn.Linear(108, 6)
    norm = nn.BatchNorm2d(6) if kind == "grouped" else nn.BatchNorm1d(6)
    model = re_estimate(nn.Sequential(layer, norm).double().eval(), inputs).model
    denoiser = AffineDenoiser(0.8, 0.05)
    shifted = copy.deepcopy(model)
    for tensor in noisy_weights(shifted).values():
        denoiser(tensor, out=tensor)
    expected = re_estimate(shifted, inputs).model
    result = calibrate(shifted, inputs, noise_variance=1e-12, denoisers=denoiser).model
    torch.testing.assert_close(result[1].running_mean, expected[1].running_mean, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(result[1].running_var, expected[1].running_var, rtol=1e-2, atol=0)


def test_keyword_inputs_are_passed_by_keyword(network: nn.Module, images: Tensor) -> None:
    by_keyword = calibrate(network, {"images": images[:20]}, noise_variance=1e-3).model
    assert same(statistics(by_keyword), statistics(calibrate(network, images[:20], noise_variance=1e-3).model))


def test_denoised_weights_can_be_calibrated(network: nn.Module, images: Tensor) -> None:
    received = transmit(network, wnr_db=3.0, seed=0)
    estimate = denoise(received, groups="layerwise").model
    by_group = GroupedWeights.of(noisy_weights(received.received), received.noise_variance, groups="layerwise")
    result = calibrate(
        estimate,
        images[:50],
        noise_variance=received.noise_variance,
        denoisers=by_group.denoisers(MMSE),
        groups="layerwise",
    ).model
    assert bool(torch.isfinite(result(images)).all())


def test_misuse_is_refused_with_the_remedy_and_leaves_the_model_alone(network: nn.Module, images: Tensor) -> None:
    before = statistics(network)
    broken = images[:4].clone()
    broken[0, 0, 0, 0] = math.nan
    for inputs, message in (
        (images[:0], "there are no inputs"),
        (images[:1], "at least 2 inputs"),
        ({}, "an empty dict"),
        (images.sum(), "a single number"),
        (broken, "not finite"),
    ):
        with pytest.raises(QuietnnError, match=message):
            calibrate(network, inputs, noise_variance=0.1, in_place=True)
    for noise_variance in (-1.0, math.nan, math.inf):
        with pytest.raises(QuietnnError, match="noise_variance"):
            calibrate(network, images[:4], noise_variance=noise_variance, in_place=True)
    with pytest.raises(InvalidConfig, match="'fc'"):
        calibrate(network, images[:4], noise_variance=0.1, denoisers={"fc": AffineDenoiser(1, 0)}, in_place=True)
    assert same(before, statistics(network))


def test_a_network_that_overflows_is_refused_and_its_statistics_put_back(network: nn.Module, images: Tensor) -> None:
    model = copy.deepcopy(network)
    with torch.no_grad():
        model.grouped.weight.fill_(1e38)
    before = statistics(model)
    with pytest.raises(InvalidWeights, match="sum_bn"):
        calibrate(model, images[:10], noise_variance=1e-3, in_place=True)
    assert same(before, statistics(model))
    assert not model.stem_bn._forward_pre_hooks


def test_without_running_statistics_there_is_nothing_to_calibrate() -> None:
    for model in (
        nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)),
        nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)),
    ):
        with pytest.raises(InvalidConfig, match="nothing to calibrate"):
            calibrate(model, torch.randn(8, 4), noise_variance=0.1)


def test_the_baselines_do_what_they_say(images: Tensor) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    with torch.no_grad():
        flat = model[0](images[:30]).movedim(1, 0).flatten(1)
    plain = re_estimate(model, images[:30]).model
    torch.testing.assert_close(plain[1].running_mean, flat.mean(1), rtol=0, atol=1e-5)
    torch.testing.assert_close(plain[1].running_var, flat.var(1), rtol=0.05, atol=0)


def test_classes_known_to_be_balanced_lose_the_preferences_that_noise_gave_them(images: Tensor) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    )
    model[-1].requires_grad_(False)
    received = transmit(trained(model, images), wnr_db=0.0, seed=0)
    with torch.no_grad():
        received.received[-1].bias[2] += 3  # a preference far beyond the others
    balanced = calibrate(received, images[:100], balanced_classes=True)
    report = balanced.details["report"]
    usual = calibrate(received, images[:100])
    assert (usual.name, balanced.name) == ("calibrated", "calibrated_balanced")
    preferences = [one.model(images[:100]).mean(0).std().item() for one in (usual, balanced)]
    assert preferences[1] == pytest.approx((1 - report.head_weight) * preferences[0], rel=1e-3)
    assert 0.01 < report.head_weight < 0.9  # what noise cannot explain stays
    assert torch.equal(received.received[-1].weight, balanced.model[-1].weight)
    quiet = calibrate(received, images[:100], noise_variance=0.0, balanced_classes=True).model
    assert same(statistics(received.received), statistics(quiet))


def test_a_network_without_a_linear_head_cannot_have_balanced_classes(images: Tensor) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    before = statistics(model)
    with pytest.raises(InvalidConfig, match=r"balanced_classes needs \(examples, classes\), leave it out"):
        calibrate(model, images[:10], noise_variance=0.5, balanced_classes=True, in_place=True)
    assert same(before, statistics(model))


def test_noise_by_layer_is_noise_and_a_weightwise_denoiser_is_one() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4), nn.BatchNorm1d(4)).eval()
    inputs = torch.rand(50, 8)
    one = calibrate(network, inputs, noise_variance=0.01).model
    by_layer = calibrate(network, inputs, noise_variance={"0": 0.01, "2": 0.01}).model
    assert torch.equal(one[1].running_var, by_layer[1].running_var)
    only_last = calibrate(network, inputs, noise_variance={"0": 0.0, "2": 0.01}).model
    assert torch.equal(only_last[1].running_var, network[1].running_var)
    assert not torch.equal(only_last[3].running_var, network[3].running_var)
    noise = {name: torch.full_like(weight, 0.01) for name, weight in noisy_weights(network).items()}
    plain, each = (
        GroupedWeights.of(noisy_weights(network), variance, groups="layerwise", statistics=None)
        for variance in (0.01, noise)
    )
    calibrated = [
        calibrate(
            network, inputs, noise_variance=variance, denoisers=by_group.denoisers(MMSE), groups="layerwise"
        ).model
        for variance, by_group in ((0.01, plain), (noise, each))
    ]
    assert torch.allclose(calibrated[0][3].running_var, calibrated[1][3].running_var, rtol=1e-4)


def test_a_gap_that_the_first_layer_shows_is_doubted_in_all_later_ones(
    images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs twice as large as the sender's: noise cannot be the reason, and no layer is to follow."""
    torch.manual_seed(0)
    layers = [module for _ in range(3) for module in (nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU())]
    received = transmit(trained(nn.Sequential(*layers), images), wnr_db=3.0, seed=0)
    told: list[Gap | None] = []
    followed: list[tuple[float, float]] = []

    def spy(prediction: Prediction, sample: ChannelMoments, gap: Gap | None, *, epsilon: float) -> Posterior:
        told.append(gap)
        result, without = (posterior(prediction, sample, own, epsilon=epsilon) for own in (gap, Gap()))
        followed.append((result.common_weight, without.common_weight))
        return result

    monkeypatch.setattr("quietnn.repairs.batchnorm.rule.posterior", spy)
    calibrate(received, 2 * images[:100] + 1)
    assert told[0] is None
    assert told[1] is not None
    assert told[1].common > 0.1
    assert told[2] == told[1]
    assert all(weight < 0.5 * without for weight, without in followed[1:])


def two_layers(inputs: Tensor) -> nn.Module:
    """Channels of very different size, so that one step of rounding for all of them silences most."""
    torch.manual_seed(2)
    network = nn.Sequential(nn.Linear(40, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8), nn.BatchNorm1d(8))
    with torch.no_grad():
        for layer in (network[0], network[3]):
            layer.weight.mul_(torch.logspace(-1, 1, len(layer.weight))[:, None])
    return trained(network, inputs)


def test_rounding_that_silences_channels_is_not_taken_for_noise() -> None:
    """Most weights of most channels become zero: no noise does that, and nothing can be predicted from it."""
    inputs = torch.randn(400, 40, generator=torch.Generator().manual_seed(0))
    network = two_layers(inputs)
    rounded = quantised(network)
    expected = re_estimate(rounded.received, inputs[:100]).model
    for what in (rounded, Observation(rounded.received, rounded.noise_variance)):  # told, and seen
        result = calibrate(what, inputs[:100])
        for name, tensor in expected.state_dict().items():
            assert torch.allclose(result.model.state_dict()[name], tensor, rtol=1e-6), name
        assert {layer.common_weight for layer in result.details["report"].layers} == {1.0}


def quantised(network: nn.Module) -> Observation[nn.Module, NoiseVariance]:
    return transmit(network, channel=channel_named("quantise", 2), seed=0).at_unit_gain()


def test_rounding_is_seen_through_the_structured_prior(images: Tensor) -> None:
    """Its map hides the grid that the weights were on."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 8, 3), nn.BatchNorm2d(8))
    with torch.no_grad():
        network[0].weight.mul_(torch.logspace(-1.5, 1.5, 32)[:, None, None, None])
    rounded = quantised(trained(network, images))
    with_maps = calibrate_structured(rounded.received, images[:100], noise_variance=rounded.noise_variance).model
    expected = re_estimate(with_maps, images[:100]).model
    for name, tensor in expected.state_dict().items():
        assert torch.allclose(with_maps.state_dict()[name], tensor, rtol=1e-5, atol=1e-6), name
    assert not torch.equal(with_maps[0].weight, rounded.received[0].weight), "the map has done something"


@pytest.mark.parametrize("wnr_db", [10.0, 20.0, 60.0])
@pytest.mark.parametrize("change", [lambda inputs: inputs + 2, lambda inputs: 10 * inputs], ids=["moved", "larger"])
def test_inputs_of_another_kind_are_no_reason_to_doubt_noise(wnr_db: float, change: Callable[[Tensor], Tensor]) -> None:
    """They make a gap that no two sets of one kind have, but noise leaves no two weights alike."""
    inputs = torch.randn(400, 40, generator=torch.Generator().manual_seed(0))
    observation = transmit(two_layers(inputs), wnr_db=wnr_db, seed=0)
    report = report_of(observation, change(inputs[:100]))
    assert all(layer.common_weight < 1 for layer in report.layers)


def test_an_error_on_later_layers_does_not_explain_what_the_first_one_shows() -> None:
    inputs = torch.randn(400, 40, generator=torch.Generator().manual_seed(0))
    network = two_layers(inputs)
    rounded = quantised(network)
    with torch.no_grad():
        rounded.received[0].load_state_dict(network[0].state_dict())
    noise = {name: 0.0 if name.startswith("0.") else one for name, one in rounded.noise_variance.items()}
    report = report_of(rounded.received, 10 * inputs[:100], noise_variance=noise)
    assert all(layer.common_weight < 1 for layer in report.layers)


def test_a_handful_of_inputs_cannot_tell_rounding_from_chance() -> None:
    inputs = torch.randn(400, 40, generator=torch.Generator().manual_seed(0))
    rounded = quantised(two_layers(inputs))
    report = report_of(rounded.received, inputs[:3], noise_variance=rounded.noise_variance)
    assert all(layer.common_weight < 1 for layer in report.layers)
