"""A language model that arrived with noise, repaired by a page of text.

python examples/repair_a_language_model.py MODEL_FOLDER TEXT_FILE
"""

import sys

import quietnn
from quietnn.tasks.language_model import generate, language_model, split_windows


def main(folder: str, text: str) -> None:
    """Put noise on a clean model, repair it without and with gradients, and let each write."""
    task = language_model(folder, tuning=text)
    known, held_out = split_windows(task.tuning_examples(40, seed=0))
    observation = quietnn.transmit(task.load_model(), wnr_db=14.0, seed=0)

    networks = {"clean": task.load_model(), "received": observation.model}
    for method in ("directions", "posterior"):
        networks[method] = quietnn.repair(observation, task.evidence(known), method=method).model
    for name, network in networks.items():
        print(
            f"{name:<12}perplexity {task.score_of(network, held_out).number:<10.4g}{generate(network, folder, 'The')}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
