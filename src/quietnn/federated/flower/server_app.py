"""The server: broadcasts the weights, hears the noisy sum of what devices made of them, and denoises it."""

import logging
from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from quietnn.federated.devices import Diverged
from quietnn.federated.flower.arrays import to_arrays, to_state
from quietnn.federated.flower.nodes import read_keys
from quietnn.federated.flower.strategy import OverTheAir
from quietnn.federated.flower.task import Settings, elsewhere
from quietnn.weights import noisy_names

LOGGER = logging.getLogger("flwr")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Federated averaging over the air, as the run configuration says (`quietnn.federated.flower.task.Settings`).

    Started again with the same `folder`, it goes on after the last round that was finished. Training that diverges ends
    the run with a record that says so.
    """
    settings = Settings.from_run_config(context.run_config)
    task = settings.load_task()
    model = task.fresh_model(settings.seed)
    test = task.score_on(task.test)
    strategy = OverTheAir(
        FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1),
        settings.federation(task, elsewhere(settings.num_devices)),
        noisy=noisy_names(model),
        folder=Path(settings.folder) if settings.folder else None,
        settings=settings.identity(),
        patience=settings.patience,
        keys=read_keys(Path(settings.device_keys)) if settings.device_keys else None,
    )

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord({"accuracy": test(to_state(arrays)).accuracy or 0.0})

    try:
        strategy.start(
            grid,
            to_arrays(model.state_dict()),
            num_rounds=settings.num_rounds,
            timeout=settings.round_timeout,
            evaluate_fn=evaluate,
        )
    except Diverged:
        LOGGER.error("The run ends here, diverged; its records say where")
    else:
        LOGGER.info("Finished %d rounds", settings.num_rounds)
