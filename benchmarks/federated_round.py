"""What a simulated round costs beyond the training that its devices do, in processor time of one process.

Each round is taken apart: the local training of its devices, and all the rest (noise, estimate, new weights, checkpoint
on the disk). Both meet the same machine within seconds of each other; the ratio is what counts, and its median over the
rounds is printed with the quartiles.

    python benchmarks/federated_round.py --task cifar10/plain-cnn --image-size 16 --repeats 7
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch

from quietnn.channels.awgn import AWGN
from quietnn.federated.air import Air
from quietnn.federated.checkpoint import Journal
from quietnn.federated.devices import train_device
from quietnn.federated.estimators import Affine, Estimator
from quietnn.federated.partition import sharded
from quietnn.federated.rounds import Federation, ServerState, aggregate, participants
from quietnn.federated.schemes import Carried, Planned
from quietnn.federated.settings import FederationSettings
from quietnn.federated.tasks import load_federated_task
from quietnn.repairs.affine import ML, MMSE
from quietnn.weights import noisy_names

ESTIMATORS: dict[str, Estimator] = {
    "ml": Affine(ML),
    "mmse_layerwise": Affine(MMSE, "layerwise"),
    "carried": Carried(),
    "planned": Planned(),
}


def main() -> None:
    """Measure, and print one JSON line for each estimator."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="cifar10/plain-cnn")
    parser.add_argument("--image-size", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    size = None if arguments.task == "digits" else arguments.image_size
    task = load_federated_task(arguments.task, image_size=size)
    training = FederationSettings(num_rounds=100, num_epochs=arguments.epochs, batch_size=arguments.batch_size)
    devices = task.devices(sharded(task.labels, 20, seed=0))
    model = task.fresh_model(0)
    for name, estimator in ESTIMATORS.items():
        federation = Federation(devices, training, Air(AWGN(wnr_db=-10.0)), estimator)
        trained, rest = _measure(federation, model, arguments.repeats)
        ratios = sorted(1 + more / alone for more, alone in zip(rest, trained, strict=True))
        quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
        result = {
            "task": arguments.task,
            "estimator": name,
            "seconds_of_training": round(statistics.median(trained), 3),
            "seconds_of_the_rest": round(statistics.median(rest), 4),
            "ratio": round(statistics.median(ratios), 4),
            "quartiles": [round(quartiles[0], 4), round(quartiles[2], 4)],
            "repeats": arguments.repeats,
        }
        print(json.dumps(result), flush=True)


def _measure(federation: Federation, model: torch.nn.Module, repeats: int) -> tuple[list[float], list[float]]:
    """Processor seconds of local training, and of everything else, for each of some rounds."""
    server = ServerState.initial(model)
    trained, rest = [], []
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "server.safetensors", {})
        for _ in range(repeats):
            number, seed = server.num_rounds_done, federation.seed
            begun = time.process_time()
            active = participants(federation.devices, federation.settings.num_active, round_number=number, seed=seed)
            chosen = time.process_time()
            updates = {
                device: train_device(
                    model,
                    server.state,
                    federation.devices[device],
                    federation.settings,
                    device=device,
                    round_number=number,
                    seed=seed,
                )[0]
                for device in active
            }
            back = time.process_time()
            server, _ = aggregate(federation, server, updates, noisy=noisy_names(model))
            model.load_state_dict(server.state)
            journal.finish(server, {"round": number})
            trained.append(back - chosen)
            rest.append(time.process_time() - back + chosen - begun)
    return trained, rest


if __name__ == "__main__":
    main()
