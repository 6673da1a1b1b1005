"""How each method is named and drawn, in one table: colours safe for colour-blind readers, markers for grey print."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MethodStyle:
    """The name a reader sees and the look of the line, the same in every figure."""

    label: str
    colour: str
    marker: str
    line: str


METHODS: dict[str, MethodStyle] = {
    "ml": MethodStyle("ML", "#000000", "s", "--"),
    "mmse": MethodStyle("MMSE", "#E69F00", "v", "-."),
    "mmse_at_mean_noise": MethodStyle("MMSE at the mean noise", "#B8860B", ".", ":"),
    "mmse_layerwise": MethodStyle("MMSE layerwise", "#A06A00", "<", ":"),
    "mmse_p": MethodStyle("MMSE_p", "#56B4E9", "^", "-."),
    "mmse_p_layerwise": MethodStyle("MMSE_p layerwise", "#2F7FB0", ">", ":"),
    "mmse_pb": MethodStyle("MMSE_pb", "#0072B2", "o", "-"),
    "mmse_pb_layerwise": MethodStyle("MMSE_pb layerwise", "#D55E00", "D", "-"),
    "mmse_pb_reused": MethodStyle("MMSE_pb reused", "#CC79A7", "P", "--"),
    "mmse_pb_oracle": MethodStyle("MMSE_pb oracle", "#009E73", "*", ":"),
    "calibrated": MethodStyle("Calibrated", "#882255", "X", "-"),
    "calibrated_balanced": MethodStyle("Calibrated, balanced classes", "#AA3377", "1", "-."),
    "branches": MethodStyle("MMSE of branches", "#77AADD", "$Y$", "-."),
    "branches_balanced": MethodStyle("MMSE of branches, balanced classes", "#225588", "$C$", "-"),
    "structured": MethodStyle("Structured prior, calibrated", "#6699CC", "$S$", "-"),
    "self_trained": MethodStyle("Self-trained, no labels", "#DDCC77", "$U$", "-"),
    "mmse_calibrated": MethodStyle("MMSE, calibrated", "#CC6677", "_", "-."),
    "re_estimated": MethodStyle("Re-estimated", "#DDAA33", "d", ":"),
    "mmse_pb_gradient": MethodStyle("MMSE_pb by gradient", "#999933", "H", "-"),
    "finetuned": MethodStyle("Fine-tuned", "#888888", "8", "--"),
    "posterior": MethodStyle("Posterior", "#44AA99", "h", "-"),
    "mmse_pb_fixed": MethodStyle("MMSE_pb fixed", "#117733", "+", "-"),
    "mmse_pb_fixed_oracle": MethodStyle("MMSE_pb fixed, oracle", "#7DA87B", "2", ":"),
    "carried": MethodStyle("Prior carried", "#AA4499", "x", "-"),
    "planned": MethodStyle("Planned", "#CC3311", "3", "-"),
    "planned_bold": MethodStyle("Planned, bold", "#882200", "$W$", "-"),
    "planned_layerwise": MethodStyle("Planned layerwise", "#EE7733", "4", "-."),
    "auto": MethodStyle("Auto", "#332288", "p", "-"),
    "auto_unlabelled": MethodStyle("Auto, no labels", "#7766BB", "|", "-."),
}
"""Every known method, in the order of tables and legends."""

REFERENCE = "ml"
"""The method that gains are measured against: the weights used as they arrived."""

CLEAN = "clean"
"""The method name of a record that holds the accuracy without noise."""

_SPARE = ("#117733", "#AA4499", "#999933", "#6699CC", "#661100", "#888888")
_SPARE_MARKERS = ("d", "8", "H", "1", "p", "h")


def style_of(method: str) -> MethodStyle:
    """The style of a method; one that the table lacks goes by its own name, always with the same look.

    >>> style_of("mmse_pb").label, style_of("brand_new").label
    ('MMSE_pb', 'brand_new')
    """
    if method in METHODS:
        return METHODS[method]
    index = sum(method.encode()) % len(_SPARE)
    return MethodStyle(method, _SPARE[index], _SPARE_MARKERS[index], "-")


def is_oracle(method: str) -> bool:
    """Whether a method was tuned on test data, so that it bounds the others and never wins.

    >>> is_oracle("mmse_pb_oracle"), is_oracle("mmse_pb")
    (True, False)
    """
    return "oracle" in method.lower()


def rank(method: str) -> int:
    """Where a method stands in tables and legends; unknown ones come last."""
    return list(METHODS).index(method) if method in METHODS else len(METHODS)
