"""What a simulated round costs beyond the training that its devices do: the ratio of the two, in one process.

Rounds and bare local training take turns, so that both meet the same machine; the ratio of processor times is what
counts, and its median over the repeats is printed with the quartiles.

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
from quietnn.denoisers.affine import ML, MMSE
from quietnn.federated.air import Air
from quietnn.federated.carried import Carried
from quietnn.federated.checkpoint import save_server
from quietnn.federated.devices import LocalTraining, train_device
from quietnn.federated.estimators import Affine, Estimator
from quietnn.federated.partition import sharded
from quietnn.federated.rounds import Federation, ServerState, participants, run_round
from quietnn.federated.tasks import load_federated_task

ESTIMATORS: dict[str, Estimator] = {
    "ml": Affine(ML),
    "mmse_layerwise": Affine(MMSE, "layerwise"),
    "carried": Carried(),
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
    training = LocalTraining(num_rounds=100, num_epochs=arguments.epochs, batch_size=arguments.batch_size)
    devices = task.devices(sharded(task.labels, 20, seed=0))
    model = task.fresh_model(0)
    for name, estimator in ESTIMATORS.items():
        federation = Federation(devices, training, Air(AWGN(wnr_db=-10.0)), estimator)
        server = ServerState.initial(model)
        rounds, bare = [], []
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(arguments.repeats):
                bare.append(_bare_training(federation, model, server))
                started = time.process_time()
                server, record = run_round(federation, model, server)
                save_server(Path(folder) / "server.safetensors", server, [record], {})
                rounds.append(time.process_time() - started)
        ratios = sorted(whole / alone for whole, alone in zip(rounds, bare, strict=True))
        quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [ratios[0]] * 3
        result = {
            "task": arguments.task,
            "estimator": name,
            "seconds_per_round": round(statistics.median(rounds), 3),
            "seconds_of_bare_training": round(statistics.median(bare), 3),
            "ratio": round(statistics.median(ratios), 4),
            "quartiles": [round(quartiles[0], 4), round(quartiles[2], 4)],
            "repeats": arguments.repeats,
        }
        print(json.dumps(result), flush=True)


def _bare_training(federation: Federation, model: torch.nn.Module, server: ServerState) -> float:
    """The processor time of the round's local training and nothing else."""
    number = server.num_rounds_done
    active = participants(federation.devices, federation.num_active, round_number=number, seed=federation.seed)
    started = time.process_time()
    for device in active:
        train_device(
            model,
            server.state,
            federation.devices[device],
            federation.training,
            device=device,
            round_number=number,
            seed=federation.seed,
        )
    return time.process_time() - started


if __name__ == "__main__":
    main()
