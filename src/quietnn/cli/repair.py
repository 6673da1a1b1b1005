"""Verbs that repair with a task: `quietnn repair`, its former name `quietnn auto`, and `quietnn tune`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from quietnn.cli import options

STREAMED = {"ml": ("ml", "whole"), "mmse": ("mmse", "whole"), "mmse_layerwise": ("mmse", "layerwise")}
"""Repairs that need no network, and what `quietnn denoise` calls them: method and groups."""

_PASSES_ON_TEXT = 20
"""About what a fit takes in mini-batches of text, for the bar."""


def repair(
    what: Annotated[Path, typer.Argument(help="The noisy weights: a .safetensors or .pt file, or a model folder.")],
    out: options.Target,
    task: Annotated[
        str | None,
        typer.Option(
            help="What the network is for: digits, cifar10/<network>, sst2/<encoder>, lm/<folder>@<texts>, "
            "package.module:function."
        ),
    ] = None,
    text: Annotated[
        list[Path] | None, typer.Option(help="Text to repair a language model by: a file, or a folder of .txt files.")
    ] = None,
    window: Annotated[int | None, typer.Option(help="Tokens of a window of the text (default: the model's).")] = None,
    marker: Annotated[str | None, typer.Option(help="A line of the text that ends a document.")] = None,
    save_memory: Annotated[
        bool, typer.Option(help="With a text: hold one block's activations at a time; takes a third longer.")
    ] = False,
    method: Annotated[
        str, typer.Option(help="auto (with a text: posterior), or a repair by name; a wrong name lists them.")
    ] = "auto",
    noise_variance: options.NoiseVariance = None,
    wnr_db: options.ReceivedWnr = None,
    noise_file: Annotated[
        Path | None, typer.Option(help="Or a JSON file with the noise variance of each tensor, by name.")
    ] = None,
    recorded: options.Recorded = False,
    num_examples: options.NumExamples = 100,
    labels: options.UseLabels = True,
    teacher: Annotated[
        Path | None, typer.Option(help="The clean weights, if you have them: their outputs take the place of labels.")
    ] = None,
    balanced_classes: options.BalancedClasses = False,
    max_passes: options.MaxPasses = 220,
    trainable: Annotated[
        str,
        typer.Option(
            help="What may change: weights, or beside fixed weights digital or adapter. OUT then holds what to add to "
            "WHAT: a peft adapter for a model folder, else safetensors."
        ),
    ] = "weights",
    rank: Annotated[int | None, typer.Option(help="Rank of an adapter (default: 8 or less).")] = None,
    budget: Annotated[
        float | None, typer.Option(help="Or the largest share of the network's parameters to add.")
    ] = None,
    seed: options.ExampleSeed = 0,
    data_dir: options.DataDir = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Repair noisy weights with what the task offers: nothing, inputs, or inputs with labels.

    A language model takes plain text: quietnn repair MODEL_FOLDER OUT_FOLDER --text notes.txt --recorded
    """
    from dataclasses import replace

    from quietnn.checkpoints.opening import check_target, open_checkpoint
    from quietnn.checkpoints.repair import observe_checkpoint, read_noise_file, write_beside, write_repaired
    from quietnn.cli.progress import byte_progress, pass_progress
    from quietnn.errors import InvalidConfig
    from quietnn.evidence import Evidence
    from quietnn.repairs.base import REPAIRS
    from quietnn.repairs.beside.where import Where
    from quietnn.repairs.front import repair as repair_model
    from quietnn.tasks.language_model import language_model, split_windows
    from quietnn.tasks.registry import is_own, load_task, own_function
    from quietnn.tasks.transformers_folder import save_activations

    if task is not None and is_own(task):
        own_function(task)  # its module may register a repair of its own
    if text and method == "auto":
        method = "posterior"  # text has a label for every token, and the posterior keeps its start where that is better
    row, where = REPAIRS[method], Where(trainable, rank, budget)
    noise: dict[str, Any] = {"noise_variance": noise_variance, "wnr_db": wnr_db, "recorded": recorded}
    if noise_file is not None:
        if noise_variance is not None:
            raise InvalidConfig("--noise-file and --noise-variance both tell the noise; leave one out")
        noise["noise_variance"] = read_noise_file(noise_file)
    if teacher is not None and (task is None or not num_examples):
        raise InvalidConfig("--teacher tells of a task's inputs; add --task NAME, and at least one of --num-examples")
    if task is None and not text:
        if where.weights_stay:
            raise InvalidConfig(f"--trainable {trainable} acts beside layers, so it needs the network; add --task NAME")
        _stream(what, out, method, noise, overwrite=overwrite)
        return
    if task is not None and text:
        raise InvalidConfig("--text brings a task of its own, a language model; leave out --task")
    if (window is not None or marker is not None or save_memory) and not text:
        raise InvalidConfig("--window, --marker and --save-memory are for a text; add --text notes.txt")
    if balanced_classes and labels and num_examples:
        raise InvalidConfig("--balanced-classes stands in for labels, which are used unless you add --no-labels")
    beside = ".safetensors" if where.weights_stay else None
    check_target(what, out, overwrite=overwrite, files=open_checkpoint(what).files, suffix=beside)
    loaded = (
        language_model(what, tuning=text, window=window, marker=marker)
        if text
        else load_task(str(task), data_dir=data_dir, weights=what)
    )
    known = loaded.tuning_examples(num_examples, seed) if num_examples else None
    known, held_out = split_windows(known) if text and known is not None else (known, None)
    evidence = Evidence() if known is None else loaded.evidence(known)
    if teacher is not None:
        clean = load_task(str(task), data_dir=data_dir, weights=teacher).load_model()
        evidence = replace(evidence.without_labels(), teacher=clean)
    model = loaded.load_model()
    if save_memory:
        save_activations(model)
    observation = observe_checkpoint(what, model, **noise)
    asked: dict[str, Any] = {"balanced_classes": balanced_classes, "max_passes": max_passes, "seed": seed}
    asked |= where.options
    expected = row.cost if labels or method != "auto" else 0.0  # what auto does without labels is seldom more than one
    with pass_progress(row.label, min(expected, _PASSES_ON_TEXT) if text else expected) as ended:
        repaired = repair_model(observation, evidence if labels else evidence.without_labels(), method=method, **asked)
        ended(repaired.passes)
    if where.weights_stay:
        write_beside(what, out, repaired, observation.model, overwrite=overwrite)
        told = f"{repaired.beside.share(model):.2%} of the parameters beside the weights, which stay"
    else:
        with byte_progress("write", threads=None) as streaming:
            changed = write_repaired(what, out, repaired, overwrite=overwrite, streaming=streaming)
        told = f"{len(changed)} tensors changed"
    typer.echo(str(repaired))
    if held_out is not None:
        before, after = (loaded.score_of(one, held_out) for one in (observation.model, repaired.model))
        typer.echo(
            f"perplexity on {after.num_examples} tokens of the text that the repair did not see: "
            f"{before.number:.4g} -> {after.number:.4g} (loss {before.loss:.3f} -> {after.loss:.3f})"
        )
        if not after.loss < before.loss:
            typer.echo("that is no better than the received model: give more text, or check the noise power")
    typer.echo(f"wrote {out}: {repaired.name}, {told}")


def _stream(what: Path, out: Path, method: str, noise: dict[str, Any], *, overwrite: bool) -> None:
    """Without a task: from file to file, any size, by a closed form."""
    from quietnn.checkpoints.denoise import denoise_checkpoint
    from quietnn.cli.progress import byte_progress
    from quietnn.cli.terminal import show_selection
    from quietnn.errors import InvalidConfig

    if method not in STREAMED:
        raise InvalidConfig(
            f"{method} runs the network, and nothing says how; add --task digits, cifar10/resnet18 or "
            f"package.module:function for a network of your own. Without a task: --method {' or '.join(STREAMED)}"
        )
    name, groups = STREAMED[method]
    asked = noise | {"method": name, "groups": groups, "overwrite": overwrite, "on_selection": show_selection}
    with byte_progress("repair", threads=None) as streaming:
        done = denoise_checkpoint(what, out, streaming=streaming, **asked)
    typer.echo(f"wrote {out}: {method}, noise variance {done.noise_variance:.6g}")


def auto(
    context: typer.Context,
    task: options.TaskName,
    out: options.Target,
    weights: Annotated[Path, typer.Option(help="The noisy weights.")],
) -> None:
    """Former name of: quietnn repair WEIGHTS OUT --task TASK, whose other options it passes on."""
    typer.echo(f"quietnn auto is now: quietnn repair {weights} {out} --task {task}", err=True)
    verbs = typer.Typer(add_completion=False)
    verbs.command()(repair)
    verbs([str(weights), str(out), "--task", task, *context.args], standalone_mode=False)


def tune(
    task: options.TaskName,
    weights: Annotated[Path, typer.Option(help="The noisy weights (sst2: a folder in transformers layout).")],
    noise_variance: Annotated[float, typer.Option(help="sigma_z^2, of the noise on every weight.")],
    out: Annotated[Path, typer.Option(help="The file to write, for quietnn denoise --temperatures.")],
    groups: Annotated[str, typer.Option(help="whole or layerwise.")] = "whole",
    num_examples: Annotated[int, typer.Option(help="Labelled examples to judge by; never test data.")] = 100,
    with_beta: Annotated[bool, typer.Option(help="Search beta too (MMSE_pb), or leave it at zero (MMSE_p).")] = True,
    seed: Annotated[int, typer.Option(help="Which examples.")] = 0,
    data_dir: options.DataDir = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Search the temperatures under which the denoised network does best on a few labelled examples."""
    from rich.console import Console

    from quietnn.channels.randomness import check_seed
    from quietnn.checkpoints.temperatures import TunedTemperatures, check_writable, write_temperatures
    from quietnn.errors import unknown_choice
    from quietnn.repairs.affine import Temperatures
    from quietnn.repairs.temperatures.tune import Search
    from quietnn.repairs.temperatures.tune import tune as search
    from quietnn.tasks.registry import load_task
    from quietnn.weights import GROUPINGS

    if groups not in GROUPINGS:
        raise unknown_choice("groups", groups, GROUPINGS)
    check_seed(seed)
    check_writable(out, source=weights, overwrite=overwrite)
    loaded = load_task(task, data_dir=data_dir, weights=weights)
    model, examples = loaded.load_model(), loaded.tuning_examples(num_examples, seed)
    with Console(stderr=True).status("searching"):
        made = search(
            model,
            loaded.evidence(examples),
            noise_variance=noise_variance,
            groups=groups,
            with_beta=with_beta,
            search=Search("coarse-to-fine"),
        )
    result, best = made.details["search"], made.details["temperatures"]
    pairs = {"whole": best} if isinstance(best, Temperatures) else best
    reached = result.best.score
    assert reached is not None
    found = {
        "task": loaded.name,
        "num_examples": num_examples,
        "seed": seed,
        "num_trials": len(result.trials),
        **({"score": reached.number} if reached.accuracy is None else {"accuracy": reached.accuracy}),
    }
    write_temperatures(out, TunedTemperatures(groups, pairs, noise_variance, found))
    typer.echo(
        f"wrote {out}: {reached} {'on' if reached.accuracy is None else 'of'} {num_examples} tuning examples after "
        f"{len(result.trials)} trials; next: quietnn denoise {weights} OUT --temperatures {out}"
    )
