"""The errata as a page of Markdown, the same text at every run."""

from quietnn.theory.errata import NUM_SAMPLES_QUADRATIC, NUM_SAMPLES_SHALLOW, SEED, Erratum, Measurement, all_errata

_HEAD = """# Errata of the paper's theory

Found while checking Section IV of "Denoising Noisy Neural Networks: A Bayesian Approach with Compensation"
and its appendices. quietnn uses the corrected forms; the printed ones stay available by name
(`constants="printed"`, `form="printed"`). Variances are written `sw`, `sz`, `S = sw + sz`; `A`, `B` are the paper's
`C1'`, `C2'`. This page is generated: `python -m quietnn.theory.errata_page > docs/errata.md`. Simulations
use {quadratic:,} draws for the quadratic network, {shallow:,} for the tanh network, and seed {seed}; `+-` is one
standard error. For the tanh network "corrected" is the exact value by quadrature.
"""

_MISPRINTS = """## Smaller misprints

- Section IV-B, the definition of `g_i''`: `tanh^3(a u_i x + b x)` means `tanh^3(theta u_i x + rho x)`.
- Proof of Lemma 1: "all the even terms vanish" means the odd ones; the first line of eq. 28 lacks its expectation.
- Appendix B, eq. 42: `A_3` lacks a factor `v_i`.
- Section III, after eq. 14: setting `mu_w = 0` drops the mean that eq. 10 still has.
"""


def render(errata: tuple[Erratum, ...]) -> str:
    """The whole page."""
    head = _HEAD.format(quadratic=NUM_SAMPLES_QUADRATIC, shallow=NUM_SAMPLES_SHALLOW, seed=SEED)
    return "\n".join([head, *(_section(erratum) for erratum in errata), _MISPRINTS])


def _section(erratum: Erratum) -> str:
    lines = [
        f"## {erratum.number}. {erratum.title}",
        "",
        f"*Where:* {erratum.where}.",
        "",
        f"*Printed:* {erratum.printed_claim}.",
        "",
        f"*Right:* {erratum.corrected_claim}.",
        "",
        "| quantity | printed | corrected | measured | by |",
        "|---|---:|---:|---:|---|",
        *(_row(measurement) for measurement in erratum.measurements),
        "",
    ]
    return "\n".join(lines)


def _row(measurement: Measurement) -> str:
    printed = "none given" if measurement.printed is None else f"{measurement.printed:.4g}"
    measured = f"{measurement.measured:.4g}"
    if measurement.standard_error is not None:
        measured += f" +- {measurement.standard_error:.1g}"
    return f"| {measurement.quantity} | {printed} | {measurement.corrected:.4g} | {measured} | {measurement.method} |"


if __name__ == "__main__":
    print(render(all_errata()), end="")
