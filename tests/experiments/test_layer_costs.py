"""What noise on single layers costs."""

from quietnn.experiments.layer_costs import layer_costs
from quietnn.targets import noisy_weights
from quietnn.tasks.registry import load_task
from quietnn.weights import layerwise


def test_every_layer_has_a_cost_and_the_costliest_comes_first() -> None:
    task = load_task("digits")
    model = task.load_model()
    before = {name: tensor.clone() for name, tensor in noisy_weights(model).items()}
    costs = layer_costs(task, model, task.tuning_examples(50, 0), wnr_db=3.0, seeds=range(2))
    assert costs.keys() == layerwise(before).keys()
    assert list(costs.values()) == sorted(costs.values(), reverse=True)
    assert next(iter(costs.values())) > 0
    assert all((noisy_weights(model)[name] == tensor).all() for name, tensor in before.items())
    quiet = layer_costs(task, model, task.tuning_examples(50, 0), wnr_db=60.0, seeds=range(1))
    assert max(map(abs, quiet.values())) < 0.01 * max(costs.values())
