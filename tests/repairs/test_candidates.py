"""What a candidate tunes is what it builds."""

import pytest
import torch

from quietnn.noise import NoiseVariance
from quietnn.repairs import candidates
from quietnn.repairs.candidates import CANDIDATES, Received
from quietnn.repairs.fitting.scratch import Scratch, Split
from quietnn.repairs.labelled import Labelled
from quietnn.repairs.temperatures.gradient import GradientTuning, tune_by_gradient
from quietnn.targets import noisy_weights, with_weights
from quietnn.weights import NORMALISATION_TYPES

NOISES = {
    "by layer": {"0": 0.0005, "3": 0.05},
    "one layer clean": {"0": 0.0, "3": 0.03},
    "by tensor": {"0.weight": 0.05, "0.bias": 0.001, "3.weight": 0.01, "3.bias": 0.1},
    "by weight": {"0.weight": torch.linspace(0.0, 0.1, 8), "0.bias": 0.001, "3": 0.02},
}


def with_noise(model: torch.nn.Module, noise: dict[str, float | torch.Tensor]) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(0)
    own = {name: noise.get(name, noise.get(name.partition(".")[0])) for name in noisy_weights(model)}
    return with_weights(
        model,
        {
            name: tensor + torch.as_tensor(own[name]).sqrt() * torch.randn(tensor.shape, generator=generator)
            for name, tensor in noisy_weights(model).items()
        },
    )


@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("normed_by", ["miniature", "layer_normed"])
def test_the_network_built_has_the_weights_that_were_judged(
    kind: str, normed_by: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, noise = request.getfixturevalue(normed_by), NOISES[kind]
    model = with_noise(data.model, noise)
    examples = Labelled(data.inputs, data.labels)
    tuned: list[GradientTuning] = []

    def watched(*arguments: object, noise_variance: NoiseVariance, **options: object) -> GradientTuning:
        tuned.append(tune_by_gradient(*arguments, noise_variance=noise_variance, **options))
        return tuned[-1]

    monkeypatch.setattr(candidates, "tune_by_gradient", watched)
    (gradient,) = (candidate for candidate in CANDIDATES if candidate.name == "mmse_pb_gradient")
    made = gradient.make(Received(model, noise, NORMALISATION_TYPES, examples, seed=0))
    (result,) = tuned
    judge = Scratch(model, examples.as_loss, len(examples), blended=normed_by == "miniature")
    held_out = judge.judge(noisy_weights(made.model), Split.of(len(examples), 0.2, seed=0).held_out)
    assert held_out == pytest.approx(min(result.held_out_loss.values()), rel=1e-4)
    if (kind, normed_by) != ("by layer", "layer_normed"):  # where the start is as good as what follows it
        assert result.best_step > 0, "it has moved"
