"""The kinds of files that quietnn reads: a sound one of each, and what reads it."""

import io
import json
import pickle
import random
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import nn

from quietnn import Temperatures, records
from quietnn.checkpoints.denoise import denoise_checkpoint
from quietnn.checkpoints.inspect import inspect_checkpoint
from quietnn.checkpoints.temperatures import TunedTemperatures, read_temperatures, write_temperatures
from quietnn.checkpoints.workers import Streaming
from quietnn.errors import MissingData, QuietnnError
from quietnn.experiments.config import load_config
from quietnn.experiments.noisy_inference import NoisyInference
from quietnn.experiments.noisy_training import NoisyTraining
from quietnn.reports.analysis import analyse_runs, diverged_sentences, sentences
from quietnn.reports.figures import render
from quietnn.reports.page.payload import page_payload
from quietnn.reports.runs import missing_sentence, read_run
from quietnn.reports.write import publication_figures
from quietnn.tasks.cifar10 import read_pickled
from quietnn.tasks.weights_file import load_weights

ONE = Streaming(num_threads=1, chunk=1)
HUGE: tuple[Any, ...] = (0, -1, 1, 2**31, 2**63, 10**40, 1e308, -1e308, 0.5, 1e400, float("nan"))
ODD: tuple[Any, ...] = (None, True, "", "inf", "nan", "x" * 300, "\ud800", "$\\frac", [], {}, [[]], [None], {"a": {}})
WORDS = [b'"', b"{", b"}", b"[", b"]", b",", b":", b"-1", b"0", b"1e9", b"null", b"true", b'"F16"', b'"BF16"', b'"I64"']
WORDS += [b'"data_offsets"', b'"__metadata__"', b'"shape"', b"9" * 30, b"\xff", b"\\ud800", b'"a.weight"', b" ", b"\n"]
WORDS += [b"\x00" * 8, b"\xff" * 8, b"[" * 3000, b"NaN", b"Infinity", b"= ", b"''", b"1e400", b"9" * 5000]


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        name: of the kind, and of the folder of its cases.
        file: what a file of this kind is called.
        originals: sound ones.
        use: reads the file at a path; raises nothing but a `QuietnnError`.
        writes: what it may leave beside the file.
        beside: other files that have to be there, by name.
        is_json: whether fields can be changed one by one; each line for itself.
        share: how often it is tried, relative to the others.
        is_there: whether what reads it is installed.
    """

    name: str
    file: str
    originals: Callable[[], Sequence[bytes]]
    use: Callable[[Path], None]
    writes: tuple[str, ...] = ()
    beside: Callable[[], dict[str, bytes]] = dict
    is_json: bool = False
    share: float = 1.0
    is_there: Callable[[], bool] = lambda: True

    def lay_out(self, folder: Path, content: bytes) -> Path:
        """Write a file of this kind, and what goes with it."""
        path = folder / "in" / self.file
        path.parent.mkdir(parents=True)
        for name, other in self.beside().items():
            (path.parent / name).write_bytes(other)
        path.write_bytes(content)
        return path


def mutated(content: bytes, kind: Kind, rng: random.Random) -> bytes:
    """One to three changes: bytes, words, cuts, copies, lines; fields, where there are some."""
    changed = bytearray(content)
    if rng.random() < 0.2:  # what a disk does: a byte here or there, and no other length
        for _ in range(rng.choice((1, 1, 2, 20))):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        return bytes(changed)
    for _ in range(rng.randint(1, 3)):
        if kind.is_json and rng.random() < 0.6:
            changed = bytearray(_with_other_field(bytes(changed), rng))
            continue
        length = int.from_bytes(changed[:8], "little") + 8  # of a safetensors header; its fields are worth more
        end = length if length < len(changed) and rng.random() < 0.6 else len(changed)
        place = rng.randrange(max(1, end))
        action = rng.randrange(8)
        if action < 3:
            changed[place : place + 1] = bytes([rng.randrange(256)])
        elif action == 3:
            changed[place : place + rng.randrange(4)] = rng.choice(WORDS)
        elif action == 4:
            del changed[place:]
        elif action == 5:
            del changed[place : place + rng.randrange(40)]
        elif action == 6:
            changed[place:place] = changed[rng.randrange(len(changed) + 1) :][: rng.randrange(60)]
        else:
            changed[:8] = rng.choice((0, 1, 2**63, len(changed), rng.randrange(2**16))).to_bytes(8, "little")
    return bytes(changed)


def _with_other_field(content: bytes, rng: random.Random) -> bytes:
    """Another value at some depth of one line, which is JSON; or one field less, or one line less or twice."""
    lines = content.split(b"\n")
    number = rng.randrange(len(lines))
    if rng.random() < 0.05:
        lines[number : number + 1] = rng.choice(([], [lines[number]] * 2))
        return b"\n".join(lines)
    whole = rng.random() < 0.5
    try:
        value = json.loads(content if whole else lines[number])
    except (ValueError, RecursionError):
        return content
    holder: Any = value
    if not isinstance(value, dict | list):
        return content
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            break
        key = rng.choice(keys)
        inner = holder[key]
        if not isinstance(inner, dict | list) or not inner or rng.random() < 0.3:
            break
        holder = inner
    if isinstance(holder, dict | list) and len(holder):
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        key = rng.choice(keys)
        if rng.random() < 0.2:
            del holder[key]
        else:
            holder[key] = rng.choice((*HUGE, *ODD))
    try:
        text = json.dumps(value).encode()
    except (ValueError, RecursionError):
        return content
    if whole:
        return text + b"\n"
    lines[number] = text
    return b"\n".join(lines)


# Checkpoints


def tensors() -> dict[str, torch.Tensor]:
    return {
        "0.weight": torch.linspace(-1, 1, 12).view(4, 3),
        "0.bias": torch.ones(4),
        "1.weight": torch.ones(4),
        "1.bias": torch.zeros(4),
        "1.running_mean": torch.zeros(4),
        "1.running_var": torch.ones(4),
        "1.num_batches_tracked": torch.tensor(3),
    }


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval()


def safetensors() -> list[bytes]:
    by_tensor = {"noise_variance_by_tensor": {"0.weight": 0.1}, "gain_by_tensor": {"0.weight": 0.5}}
    step = [{"verb": "transmit", "tensors": ["0.weight"], "seed": 1, **by_tensor}]
    half = {name: one.half() if one.is_floating_point() else one for name, one in tensors().items()}
    return [save(tensors(), metadata={"format": "pt", "quietnn": json.dumps(step)}), save(half)]


def use_safetensors(path: Path) -> None:
    inspect_checkpoint(path, noise_variance=0.1, streaming=ONE)
    denoise_checkpoint(path, path.parents[1] / "out.safetensors", noise_variance=0.1, streaming=ONE)


def use_weights(path: Path) -> None:
    load_weights(network(), path)


def index() -> list[bytes]:
    return [json.dumps({"metadata": {}, "weight_map": dict.fromkeys(tensors(), "model.safetensors")}).encode()]


def use_index(path: Path) -> None:
    denoise_checkpoint(path.parent, path.parents[1] / "out", noise_variance=0.1, streaming=ONE)


def torch_files() -> list[bytes]:
    """Stored as torch does it, and with every record deflated."""
    stream = io.BytesIO()
    torch.save(tensors(), stream)
    packed = io.BytesIO()
    with zipfile.ZipFile(stream) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return [stream.getvalue(), packed.getvalue()]


def use_torch_file(path: Path) -> None:
    denoise_checkpoint(path, path.parents[1] / "out.pt", noise_variance=0.1, streaming=ONE)
    load_weights(network(), path)


def temperatures() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        write_temperatures(path, TunedTemperatures("whole", {"whole": Temperatures(0.5, 0.1)}, 0.1))
        return [path.read_bytes()]


def use_temperatures(path: Path) -> None:
    source, out = path.with_name("in.safetensors"), path.parents[1] / "out.safetensors"
    denoise_checkpoint(source, out, temperatures=read_temperatures(path), streaming=ONE)


def plain_pickles() -> list[bytes]:
    import numpy as np

    batch = {"labels": [3, 8], "data": np.zeros((2, 3072), dtype=np.uint8), "names": ["a", "b"]}
    return [pickle.dumps(batch, protocol=protocol) for protocol in (0, 2, 4)][1:]


# Records and configurations


@cache
def sound_records() -> bytes:
    return lines_of(inference(), sums=True)


def lines_of(found: Sequence[records.Record], *, sums: bool) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.jsonl"
        records.append(path, found)
        with_sums = path.read_bytes()
    return with_sums if sums else "".join(records.encode(record) + "\n" for record in found).encode()


def inference() -> list[records.Record]:
    common = {"experiment": "noisy_inference", "run": "r", "task": "digits", "seed": 0, "version": "0.1.0"}
    clean = {**common, "method": "clean", "wnr_db": float("inf"), "draw": 0, "accuracy": 0.9, "num_test_examples": 100}
    noisy = [
        {**common, "method": method, "wnr_db": wnr, "draw": 0, "accuracy": 0.5 + wnr / 50 + gain, "seconds": 0.1}
        for method, gain in (("ml", 0.0), ("mmse_pb", 0.02))
        for wnr in (0.0, 6.0)
    ]
    noisy[-1] |= {"lambda_prime": 0.5, "beta": 0.1, "num_tuning_examples": 100, "noise_variance": 0.1}
    noisy[-1] |= {"trials": [[0.5, 0.1, 0.7, 0.9], [0.7, 0.0, None, None], [0.5, 0.0, 0.6, 1.0]]}
    noisy[-1] |= {"group_temperatures": {"a": [0.5, 0.1], "b": [1.0, 0.0]}, "group_wnr_db": {"a": 3.0, "b": None}}
    return [clean, *noisy]


def training() -> list[records.Record]:
    common = {"experiment": "noisy_training", "run": "r", "task": "digits", "seed": 0, "status": "finished"}
    rounds = {"tested_rounds": [1, 2], "round_accuracy": [0.3, 0.5], "num_rounds": 2, "seconds": 1.0, "num_passes": 3}
    sent = {"deployed_wnr_db": [0.0, 6.0], "deployed_ml": [0.2, 0.4]}
    fixed = {"fixed": "1 0", "lambda_prime": 0.5, "beta": 0.0}
    diverged = {"status": "diverged", "diverged_round": 2, "accuracy": None, "reason": "not finite"}
    made = [{"method": "clean", "wnr_db": float("inf"), "accuracy": 0.9}, {"method": "ml", "wnr_db": 0.0} | diverged]
    made += [
        {"method": "ml", "wnr_db": 6.0, "accuracy": 0.6},
        {"method": "fixed", "wnr_db": 6.0, "accuracy": 0.7} | fixed,
    ]
    return [common | rounds | sent | {"draw": 0} | one for one in made]


def theory() -> list[records.Record]:
    row = {"figure": 6, "input_limit": [0.1, 0.2], "simulated_input_limit": [0.1]}
    curves = {f"{which}_{name}": [1.0, 2.0] for which in ("ml", "pb") for name in ("exact", "printed", "leading")}
    dots = {f"{which}_{name}": [1.0] for which in ("ml", "pb") for name in ("simulated", "standard_error")}
    check = {"network": "quadratic", "setting": "s", "closed_form": 1.0, "monte_carlo": 1.1, "standard_error": 0.1}
    found: list[records.Record] = [
        {"kind": "relation", "figure": 2, "pole": 2.0, "weight_variance": 1.0, "noise_variance": 1.0}
        | {"lambda_prime": [0.0, 1.0], "theta": [0.5, 1.0]},
        {"kind": "estimator", "figure": 2, "name": "ML", "region": "exact", "theta": 1.0, "lambda_prime": 1.0},
        {
            "kind": "surface",
            "figure": 3,
            "form": "corrected",
            "theta": [0.0, 1.0],
            "rho": [0.0],
            "error": [[1.0], [2.0]],
        },
        {"kind": "point", "figure": 3, "name": "P1", "theta": 1.0, "rho": 0.0, "error": 1.0, "point_kind": "minimum"},
        {"kind": "against_c"} | row | curves | dots,
        {"kind": "check", "z": 1.0, "printed": 1.0, "z_printed": 1.0} | check,
    ]
    return [{"experiment": "theory"} | record for record in found]


def all_records() -> list[bytes]:
    kinds = (inference(), training(), theory())
    plain = [lines_of(found, sums=False) for found in kinds]
    return [*plain, *plain, lines_of([*kinds[0], *kinds[1]], sums=True)]


def use_records(path: Path) -> None:
    """What report, analyze and the live page do, and seldom what figures does, which takes longest.

    A line that is damaged is left out by the page.
    """
    for only_sound in (True, False):
        runs = [read_run(path.parent, only_sound=only_sound)]
        analysis = analyse_runs(runs, num_resamples=20)
        json.dumps(page_payload(analysis)).encode()
        if zlib.crc32(path.read_bytes()) % 100 == 0:
            with suppress(MissingData):
                for figure in publication_figures(runs).values():
                    render(figure, "svg")
        for task in analysis.trained:
            "\n".join([*sentences(task), *diverged_sentences(task.records)]).encode()


def run_config() -> list[bytes]:
    config = {"name": "r", "task": "digits", "wnr_db": [0.0, 6.0], "methods": ["ml", "mmse"], "num_draws": 2}
    return [
        json.dumps(config).encode(),
        json.dumps(config | {"num_rounds": 3, "fixed": ["1 0"], "levels": []}).encode(),
    ]


def use_run_config(path: Path) -> None:
    run = read_run(path.parent)
    missing_sentence(run).encode()
    json.dumps(page_payload(analyse_runs([run], num_resamples=2))).encode()


def toml() -> list[bytes]:
    sweep = 'name = "r"\ntask = "digits"\nwnr_db = [0, 6.5]\nmethods = ["ml", "mmse_pb"]\nnum_draws = 2\nseed = 1\n'
    sweep += '[presets.small]\nnum_draws = 1\nsearch = "even-grid"\n'
    federation = 'name = "f"\ntask = "digits/mlp"\nwnr_db = [0]\nmethods = ["ml"]\nnum_rounds = 3\nfixed = ["1 0"]\n'
    return [sweep.encode(), federation.encode()]


def use_toml(path: Path) -> None:
    kind = NoisyTraining if b"num_rounds" in path.read_bytes() else NoisyInference
    presets = b"presets" in path.read_bytes()
    config = load_config(kind, path, preset="small" if presets else None, overrides=["seed=3"])
    len(config.units())


# Federations

SETTINGS = {"seed": 1, "task": "digits"}


def server_states() -> list[bytes]:
    from quietnn.federated.checkpoint import Journal
    from quietnn.federated.rounds import ServerState

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.safetensors"
        state = {name: one for name, one in tensors().items() if one.is_floating_point()}
        journal = Journal(path, SETTINGS)
        for number in (1, 2):
            journal.finish(ServerState(number, state, {}), {"round": number, "loss": 0.5})
        return [path.read_bytes()]


def use_server_state(path: Path) -> None:
    from quietnn.federated.checkpoint import Journal

    Journal(path, SETTINGS).load()


def has_checked_states() -> bool:
    from quietnn.federated import checkpoint

    return hasattr(checkpoint, "Journal")


def replies() -> list[bytes]:
    """What a device sends, in a form that can be changed field by field: arrays as NumPy writes them, and numbers."""
    import numpy as np

    arrays = {}
    for name in ("a", "b"):
        stream = io.BytesIO()
        np.save(stream, np.ones((2, 3), dtype=np.float32))
        data = stream.getvalue().decode("latin-1")
        arrays[name] = {"dtype": "float32", "shape": [2, 3], "stype": "numpy.ndarray", "data": data}
    return [json.dumps({"arrays": arrays, "metrics": {"num-examples": 10, "train-loss": 0.5}}).encode()]


def use_reply(path: Path) -> None:
    """Build the message that such a reply would be, as far as Flower lets one, and read it."""
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.supercore.task_identity import TaskIdentity

    from quietnn.federated.flower.protocol import BadReply
    from quietnn.federated.flower.replies import read_reply

    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1  # messages bear them
    try:
        told = json.loads(path.read_bytes())
        arrays = {
            name: Array(one["dtype"], tuple(one["shape"]), one["stype"], one["data"].encode("latin-1"))
            for name, one in told["arrays"].items()
        }
        content = RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord(told["metrics"])})
    except Exception as error:  # Flower itself cannot carry this one
        raise QuietnnError("no message") from error
    message = Message(content, dst_node_id=1, message_type="train")
    state = {"a": torch.zeros(2, 3), "b": torch.zeros(2, 3)}
    try:
        read_reply(message, state, numbers=("train-loss",), weighted_by="num-examples")
    except BadReply as error:
        raise QuietnnError(str(error)) from error


def has_replies() -> bool:
    if find_spec("flwr") is None:
        return False
    return find_spec("quietnn.federated.flower.replies") is not None


KINDS = (
    Kind("safetensors", "in.safetensors", safetensors, use_safetensors, ("out.safetensors",), share=2.0),
    Kind("weights", "in.safetensors", safetensors, use_weights),
    Kind(
        "index",
        "model.safetensors.index.json",
        index,
        use_index,
        ("out",),
        beside=lambda: {"model.safetensors": save(tensors())},
        is_json=True,
    ),
    Kind("torch", "in.pt", torch_files, use_torch_file, ("out.pt",)),
    Kind(
        "temperatures",
        "t.json",
        temperatures,
        use_temperatures,
        ("out.safetensors",),
        beside=lambda: {"in.safetensors": save(tensors())},
        is_json=True,
    ),
    Kind("pickle", "batch", plain_pickles, lambda path: read_pickled(path.read_bytes()), share=2.0),
    Kind("records", "records.jsonl", all_records, use_records, is_json=True, share=0.4),
    Kind(
        "config",
        "config.json",
        run_config,
        use_run_config,
        beside=lambda: {"records.jsonl": sound_records()},
        is_json=True,
    ),
    Kind("toml", "c.toml", toml, use_toml, share=2.0),
    Kind(
        "server",
        "server.safetensors",
        server_states,
        use_server_state,
        ("in/server.damaged.safetensors",),
        share=2.0,
        is_there=has_checked_states,
    ),
    Kind("reply", "reply.json", replies, use_reply, is_json=True, share=2.0, is_there=has_replies),
)
