"""Who made a tensor is known until it is written into; a network that was watched is as it was."""

import pytest
import torch
from torch import nn

from quietnn.watching.makers import Makers, eagerly, undisturbed


def test_a_maker_is_forgotten_with_its_tensor_and_by_what_is_written_into_it() -> None:
    makers: Makers[str] = Makers()
    made, other = torch.ones(2), torch.ones(2)
    makers.remember(made, "layer")
    assert makers.of(made) == "layer"
    assert makers.of(other) is None
    made.add_(1)
    assert makers.of(made) is None
    makers.remember(made, "again")
    del made
    assert not makers._made, "activations are not kept from being freed"


def test_tensors_of_inference_mode_are_passed_over() -> None:
    makers: Makers[str] = Makers()
    with torch.inference_mode():
        made = torch.ones(2)
        makers.remember(made, "layer")
    assert makers.of(made) is None


def test_modes_and_buffers_are_put_back_also_after_a_failure_but_for_the_statistics() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout()).train()
    model[1].eval()

    def watch_and_fail() -> None:
        with undisturbed(model):
            assert not model[0].training
            model[0].num_batches_tracked.add_(7)
            model[0].running_mean.fill_(3.0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        watch_and_fail()
    assert [layer.training for layer in model] == [True, False]
    assert model[0].num_batches_tracked.item() == 0
    assert model[0].running_mean.tolist() == [3.0, 3.0]


def test_hooks_of_a_compiled_network_are_called() -> None:
    model = nn.Linear(2, 2)
    called: list[str] = []
    model.register_forward_hook(lambda *_: called.append("hook"))
    compiled = torch.compile(model, backend="eager")
    with eagerly(compiled), eagerly(compiled):
        compiled(torch.zeros(1, 2))
    assert called == ["hook"]
