"""What the field does without labels and without gradients, from its papers: baselines that know nothing of the noise.

T3A replaces the last layer by class means of what enters it (Iwasawa and Matsuo, NeurIPS 2021). BatchNorm adaptation
blends stored and new statistics (Schneider et al., NeurIPS 2020).
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

from quietnn.batches import logits_of
from quietnn.errors import InvalidConfig
from quietnn.evidence import some_inputs
from quietnn.observation import observe
from quietnn.repairs.base import Repaired
from quietnn.repairs.entropy import entropy_of
from quietnn.watching.makers import eagerly, undisturbed
from quietnn.watching.samples import Visit
from quietnn.watching.survey import Run
from quietnn.watching.visits import visit_batch_norms

SOURCE_SIZE = 16
"""Inputs that stored statistics count as, a setting of the paper."""

SUPPORTS = 20
"""The inputs of each class that T3A keeps, a setting of its paper."""


@torch.inference_mode(False)
def t3a(what: object, inputs: object, *, supports: int = SUPPORTS) -> Repaired:
    """Replace the last linear layer by the mean directions of its inputs, class by class; one pass, no gradient.

    A class begins with its own weights; of the inputs that are taken for it, the surest are added.

    Args:
        what: the network as received.
        inputs: what the network is for, without labels, in any form of `Evidence`.
        supports: inputs of each class that are kept.

    >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    >>> t3a(network, torch.rand(20, 4)).model[2].bias
    Parameter containing:
    tensor([0., 0., 0.], requires_grad=True)
    """
    observation, evidence = observe(what), some_inputs(inputs, "t3a")
    network = copy.deepcopy(observation.model)
    features: list[Tensor] = []
    answers: list[Tensor] = []
    head: nn.Linear | None = None
    with undisturbed(network), eagerly(network), torch.no_grad():
        for batch, _ in evidence.batches():
            run = Run()
            logits = logits_of(run.through(network, batch))
            feeder, given = run.feeder(logits)
            if feeder is None or given is None or not isinstance(feeder.layer, nn.Linear) or logits.dim() != 2:
                raise InvalidConfig(
                    "t3a replaces a last linear layer, and this network does not end in one; use another method"
                )
            head = feeder.layer
            features.append(given)
            answers.append(logits)
    assert head is not None  # evidence without a batch is refused
    logits, found = torch.cat(answers), torch.cat(features)
    taken, entropy = logits.argmax(1), entropy_of(logits)
    with torch.no_grad():
        centres = []
        for label, own in enumerate(head.weight):
            members = torch.nonzero(taken == label).flatten()
            surest = members[entropy[members].argsort()[:supports]]
            centres.append(functional.normalize(torch.cat([own[None], found[surest]]), dim=1).mean(0))
        head.weight.copy_(functional.normalize(torch.stack(centres), dim=1))
        if head.bias is not None:
            head.bias.zero_()
    return Repaired(network, "t3a", 1.0)


@torch.inference_mode(False)
def adapt_statistics(what: object, inputs: object, *, source_size: int = SOURCE_SIZE) -> Repaired:
    """Blend stored BatchNorm statistics with those of `n` inputs: `(N stored + n seen) / (N + n)`.

    Args:
        what: the network as received.
        inputs: at least two inputs, in any form of `Evidence`.
        source_size: `N`, the inputs that stored statistics count as.

    >>> network = nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 1)).eval()
    >>> adapt_statistics(network, torch.tensor([[1.0], [3.0]]), source_size=2).model[0].running_mean
    tensor([1.])
    """
    observation, evidence = observe(what), some_inputs(inputs, "adapt_statistics")
    result = copy.deepcopy(observation.model)
    share = len(evidence) / (len(evidence) + source_size)

    def blended(visit: Visit) -> tuple[Tensor, Tensor]:
        return (
            torch.lerp(visit.mean, visit.channels.mean.to(visit.mean), share),
            torch.lerp(visit.variance, visit.channels.variance.to(visit.variance), share),
        )

    return Repaired(result, "adapted_statistics", visit_batch_norms(result, evidence, blended)[1])
