"""Every method by name: what it needs, what it costs, how it is drawn. No torch: those who read records need none."""

from dataclasses import dataclass

from quietnn.records.schema import CLEAN as CLEAN

NEEDS = ("nothing", "inputs", "shares", "labels", "teacher")
"""What a method can need beside the noisy weights, each more than the one before: inputs, inputs whose classes have
known shares, inputs with labels, inputs with the clean network to tell labels."""


@dataclass(frozen=True)
class Method:
    """What results show of a method: its name, its look and its cost.

    Attributes:
        name: in records, configurations and `--method`.
        label: in tables and legends.
        colour: of its line, safe for colour-blind readers.
        marker: for grey print.
        line: its style.
        needs: one of `NEEDS`.
        cost: about how many forward passes over the examples it takes; a backward pass counts two.
        reference: an equation of the paper, a page of ours, or another paper.

    >>> Method("mine", "My repair", "#117733", needs="inputs").needs
    'inputs'
    """

    name: str
    label: str
    colour: str
    marker: str = "o"
    line: str = "-"
    needs: str = "labels"
    cost: float = 0.0
    reference: str = ""


def _found(where: str) -> str:
    """A reference as a reader finds it: a page of ours by its path."""
    return f"docs/how-it-works/{where}" if where.endswith(".md") else where


_ROWS = (
    ("ml", "ML", "#000000", "s", "--", "nothing", 0, "eq. (4)"),
    ("mmse", "MMSE", "#E69F00", "v", "-.", "nothing", 0, "eq. (8)"),
    ("mmse_at_mean_noise", "MMSE at the mean noise", "#B8860B", ".", ":", "nothing", 0, "eq. (8)"),
    ("mmse_layerwise", "MMSE layerwise", "#A06A00", "<", ":", "nothing", 0, "eq. (8), layer by layer"),
    ("mmse_p", "MMSE_p", "#56B4E9", "^", "-.", "labels", 8, "eq. (10)"),
    ("mmse_p_layerwise", "MMSE_p layerwise", "#2F7FB0", ">", ":", "labels", 22, "eq. (10), layer by layer"),
    ("mmse_pb", "MMSE_pb", "#0072B2", "o", "-", "labels", 8, "eq. (13)"),
    ("mmse_pb_layerwise", "MMSE_pb layerwise", "#D55E00", "D", "-", "labels", 110, "eq. (13), layer by layer"),
    ("mmse_pb_reused", "MMSE_pb reused", "#CC79A7", "P", "--", "nothing", 0, "eq. (13)"),
    ("mmse_pb_oracle", "MMSE_pb oracle", "#009E73", "*", ":", "labels", 22, "eq. (13)"),
    ("calibrated", "Calibrated", "#882255", "X", "-", "inputs", 1, "calibration.md"),
    ("calibrated_balanced", "Calibrated, balanced classes", "#AA3377", "1", "-.", "shares", 1, "calibration.md"),
    ("branches", "MMSE of branches", "#77AADD", "$Y$", "-.", "inputs", 0, "branches.md"),
    ("branches_balanced", "MMSE of branches, balanced classes", "#225588", "$C$", "-", "shares", 1, "branches.md"),
    ("directions", "MMSE by input direction", "#99DDFF", "$D$", "-", "inputs", 1, "directions.md"),
    ("energy", "Energy restored", "#4477AA", "$E$", "-", "inputs", 1, "auto.md"),
    ("energy_balanced", "Energy restored, balanced classes", "#66CCEE", "$B$", "-.", "shares", 2, "auto.md"),
    ("structured", "Structured prior, calibrated", "#6699CC", "$S$", "-", "inputs", 2, "structured.md"),
    ("self_trained", "Self-trained, no labels", "#DDCC77", "$U$", "-", "shares", 100, "self-training.md"),
    ("mmse_calibrated", "MMSE, calibrated", "#CC6677", "_", "-.", "inputs", 1, "calibration.md"),
    ("re_estimated", "Re-estimated", "#DDAA33", "d", ":", "inputs", 1, "Schneider et al. 2020"),
    ("adapted_statistics", "BatchNorm adaptation", "#EECC66", "$N$", ":", "inputs", 1, "Schneider et al. 2020"),
    ("t3a", "T3A", "#EEAACC", "$3$", ":", "inputs", 1, "Iwasawa and Matsuo 2021"),
    ("tent", "TENT", "#BBCC33", "$T$", "--", "inputs", 97, "Wang et al. 2021"),
    ("eata", "EATA", "#AAAA00", "$F$", "--", "inputs", 100, "Niu et al. 2022"),
    ("sar", "SAR", "#5B8C3A", "$R$", "--", "inputs", 190, "Niu et al. 2023"),
    ("mmse_pb_gradient", "MMSE_pb by gradient", "#999933", "H", "-", "labels", 110, "posterior.md"),
    ("finetuned", "Fine-tuned", "#888888", "8", "--", "labels", 270, "posterior.md"),
    ("lora", "Low rank (LoRA)", "#BBBBBB", "$L$", "--", "labels", 270, "Hu et al. 2022"),
    ("finetuned_started", "Fine-tuned, posterior's start", "#666666", "$H$", "-.", "labels", 270, "posterior.md"),
    ("lora_started", "LoRA, posterior's start", "#999999", "$K$", "-.", "labels", 270, "Hu et al. 2022"),
    ("l2_sp", "L2-SP, posterior's start", "#776655", "$Z$", ":", "labels", 270, "Li et al. 2018"),
    ("posterior", "Posterior", "#44AA99", "h", "-", "labels", 148, "posterior.md"),
    ("posterior_adapter", "Posterior, adapter", "#227766", "$A$", "-.", "labels", 154, "posterior.md"),
    ("posterior_digital", "Posterior, digital", "#88CCBB", "$O$", ":", "labels", 148, "posterior.md"),
    ("matched", "Matched to the clean network", "#5E2A00", "$M$", "-", "teacher", 2, "teacher.md"),
    ("matched_adapter", "Matched, adapter", "#AA5533", "$Q$", "-.", "teacher", 3, "teacher.md"),
    ("mmse_pb_fixed", "MMSE_pb fixed", "#117733", "+", "-", "labels", 0, "noisy-training.md"),
    ("mmse_pb_fixed_oracle", "MMSE_pb fixed, oracle", "#7DA87B", "2", ":", "labels", 0, "noisy-training.md"),
    ("carried", "Prior carried", "#AA4499", "x", "-", "labels", 0, "noisy-training.md"),
    ("planned", "Planned", "#CC3311", "3", "-", "labels", 0, "noisy-training.md"),
    ("planned_bold", "Planned, bold", "#882200", "$W$", "-", "labels", 0, "noisy-training.md"),
    ("planned_layerwise", "Planned layerwise", "#EE7733", "4", "-.", "labels", 0, "noisy-training.md"),
    ("auto", "Auto", "#332288", "p", "-", "labels", 150, "auto.md"),
    ("auto_unlabelled", "Auto, no labels", "#7766BB", "|", "-.", "inputs", 1, "auto.md"),
)
METHODS = {row[0]: Method(*row[:-1], _found(row[-1])) for row in _ROWS}
"""Every known method, in the order of tables and legends."""

REFERENCE = "ml"
"""The method that gains are measured against: the weights used as they arrived."""

_SPARE = ("#117733", "#AA4499", "#999933", "#6699CC", "#661100", "#888888")
_SPARE_MARKERS = ("d", "8", "H", "1", "p", "h")


def style_of(method: str) -> Method:
    """The style of a method; one that the table lacks goes by its own name, always with the same look.

    >>> style_of("mmse_pb").label, style_of("brand_new").label
    ('MMSE_pb', 'brand_new')
    """
    if method in METHODS:
        return METHODS[method]
    index = sum(method.encode()) % len(_SPARE)
    return Method(method, method, _SPARE[index], _SPARE_MARKERS[index])


def is_oracle(method: str) -> bool:
    """Whether a method was tuned on test data, so that it bounds the others and never wins.

    >>> is_oracle("mmse_pb_oracle"), is_oracle("mmse_pb")
    (True, False)
    """
    return "oracle" in method.lower()


def rank(method: str) -> int:
    """Where a method stands in tables and legends; unknown ones come last."""
    return list(METHODS).index(method) if method in METHODS else len(METHODS)
