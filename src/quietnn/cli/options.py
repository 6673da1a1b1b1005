"""Options that several verbs share, each with one name and one help text."""

from pathlib import Path
from typing import Annotated

import typer

Runs = Annotated[list[Path], typer.Argument(help="Run folders, each with a records.jsonl.", metavar="RUN...")]
Level = Annotated[
    float | None,
    typer.Option(
        help="Accuracy at which gains are read; by default 0.75 for sst2, else 0.6. For language models the factor on "
        "the perplexity without noise, by default 1.5; for another score, that score."
    ),
]

Source = Annotated[Path, typer.Argument(help="A .safetensors or .pt file, or a model folder.")]
Target = Annotated[Path, typer.Argument(help="Where to write; of the same kind.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an output that is there.")]
Noisy = Annotated[
    list[str] | None, typer.Option(help="Pattern of the tensors that are noisy, in place of the rule. May be repeated.")
]
Exclude = Annotated[list[str] | None, typer.Option(help="Pattern of tensors to leave as they are. May be repeated.")]
StreamThreads = Annotated[int | None, typer.Option(min=1, help="Threads (default: by the number of cores).")]
NoiseVariance = Annotated[float | None, typer.Option(help="Variance of the noise on every weight, sigma_z^2.")]
ReceivedWnr = Annotated[float | None, typer.Option(help="Or the WNR in dB: sigma_z^2 = var(r) / (1 + WNR).")]
Recorded = Annotated[bool, typer.Option("--recorded", help="Or what quietnn transmit recorded in the file.")]

TaskName = Annotated[
    str,
    typer.Argument(help="digits, cifar10/<network>, sst2/<encoder>, lm/<folder>@<texts>, or package.module:function."),
]
DataDir = Annotated[Path | None, typer.Option(help="Data folder (default: $QUIETNN_DATA, ~/.cache/quietnn)")]
OtherWeights = Annotated[Path | None, typer.Option(help="Other weights (sst2: a folder in transformers layout)")]
UseLabels = Annotated[bool, typer.Option(help="Use the labels of the examples, or their inputs only.")]
BalancedClasses = Annotated[bool, typer.Option(help="Without labels: all classes are about equally common.")]
NumExamples = Annotated[int, typer.Option(help="Examples of the task to use; 0 for none. Never test data.")]
MaxPasses = Annotated[float, typer.Option(help="Most passes over the examples that auto may take.")]
ExampleSeed = Annotated[int, typer.Option(help="Seed for choosing and halving the examples.")]

RunFolder = Annotated[Path | None, typer.Option(help="Folder of the run; an existing one is resumed.")]
Preset = Annotated[str | None, typer.Option(help="A preset of the file, for example laptop or paper.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Replace a key: --set num_draws=3")]
Workers = Annotated[int, typer.Option(help="Worker processes.")]
WorkerThreads = Annotated[int, typer.Option(help="Threads in each worker.")]
