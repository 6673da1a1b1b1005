"""The paper's figures 2, 3, 5 and 6, drawn from the records of the theory checks alone."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from quietnn.errors import InvalidConfig
from quietnn.records import Record
from quietnn.reports.figures import Figure, drawing, new_figure, settle, sized

_BLUE, _ORANGE, _GREEN, _GREY, _RED = "#2166ac", "#e08214", "#1b7837", "#666666", "#b2182b"
_SURFACE_MAP = "viridis"
_FORMS_OF_FIGURE_6 = (
    ("exact", "-", "exact"),
    ("printed", "--", "paper (eq. 31)"),
    ("leading", ":", "corrected order $c^2$"),
)


def theory_figures(records: Sequence[Record], *, style: str = "screen") -> dict[str, Figure]:
    """The four figures by the name of their file; on paper each spans both columns of a page."""
    drawn = {}
    for name, draw in FIGURES.items():
        with drawing(style):
            try:
                figure = draw(records)
            except (KeyError, ValueError, TypeError, IndexError, ZeroDivisionError) as error:
                raise InvalidConfig(
                    f"{name} cannot be drawn from these {len(records)} records ({error}); it needs those of a "
                    "whole run: quietnn theory"
                ) from error
            width, height = figure.get_size_inches()
            figure.set_size_inches(sized(style, wide=True, height=height * 9.6 / width))
            drawn[name] = settle(figure)
    return drawn


def relations_figure(records: Sequence[Record]) -> Any:
    """Figure 2: the estimators as lines through the origin, and theta along lambda' with its regions."""
    curve = _one(records, kind="relation", figure=2)
    figure, (lines, along) = _panels("AB", (8.6, 3.6), width_ratios=(1, 1.35))
    shown = [record for record in records if record.get("kind") == "estimator" and record.get("figure") == 2]
    for record, colour in zip(shown, (_BLUE, _GREEN, "black", _ORANGE), strict=True):
        region = record["region"].replace("-compensation", "").replace(" compensation", "")
        name = record["name"].replace("MMSE_p", "MMSE$_p$")
        slope = record["theta"]
        label = f"{name} ({region}), $\\theta={slope:.2f}$"
        lines.plot([-2, 2], [-2 * slope, 2 * slope], color=colour, lw=1.8, label=label)
        along.plot([record["lambda_prime"]], [slope], "o", color=colour, ms=6, zorder=3)
    lines.set(xlabel="received weight $r$", ylabel=r"estimate $\hat w=\theta r$", ylim=(-3.4, 4.6), xlim=(-2, 2))
    lines.axhline(0, color=_GREY, lw=0.5)
    lines.legend(loc="upper left", handlelength=1.4)
    lines.set_title(f"$\\sigma_w^2={curve['weight_variance']:g}$, $\\sigma_z^2={curve['noise_variance']:g}$")
    limit = curve["pole"]
    top = 5.0
    along.plot(curve["lambda_prime"], curve["theta"], color="black", lw=1.4)
    along.axvspan(0, 1, color=_GREEN, alpha=0.08, lw=0)
    along.axvspan(1, limit, color=_ORANGE, alpha=0.10, lw=0)
    along.axvline(limit, color=_RED, lw=1.2, ls="--")
    along.text(0.5, 0.94 * top, "under-\ncompensation", ha="center", va="top", color=_GREEN)
    along.text((1 + limit) / 2, 0.94 * top, "over-\ncompensation", ha="center", va="top", color=_ORANGE)
    along.text(limit + 0.05, top / 2, r"pole, $\lambda'=1+\eta$", ha="left", va="center", color=_RED, rotation=90)
    arrow = {"arrowstyle": "-", "color": _GREY, "lw": 0.7}
    along.annotate("zero compensation (MMSE)", (0, curve["theta"][0]), (0.05, 1.75), color=_BLUE, arrowprops=arrow)
    along.annotate("exact compensation (ML)", (1, 1), (1.25, 0.45), va="center", arrowprops=arrow)
    along.set(xlabel=r"$\lambda'$", ylabel=r"multiplier $\theta$", xlim=(-0.08, limit + 0.3), ylim=(0, top))
    along.set_title(r"$\theta=\sigma_w^2/(\sigma_w^2+(1-\lambda')\sigma_z^2)$")
    return figure


def quadratic_figure(records: Sequence[Record]) -> Any:
    """Figure 3: the error surface of the quadratic network and its contours with P1 to P4."""
    surface = _one(records, kind="surface", figure=3)
    relief = {"A": {"projection": "3d"}}
    figure, (solid, contour) = _panels("AB", (9.0, 3.9), width_ratios=(1, 1.05), per_subplot_kw=relief)
    _relief(solid, surface, top=60.0, title="expected squared error $\\bar D$")
    levels = [6.5, 7.5, 9, 10.2, 11.4, 11.8, 13.5, 16, 20, 26, 35, 50]
    _contours(figure, contour, surface, levels=levels)
    style = {"maximum": "^", "minimum": "o", "saddle": "X", "degenerate": "D", "estimator": "s"}
    for record in _points(records, 3):
        name, theta, rho = record["name"], record["theta"], record["rho"]
        mirrored = [(theta, rho)] if name == "ML" else [(p * theta, q * rho) for p in (1, -1) for q in (1, -1)]
        marker = style[record["point_kind"]]
        contour.plot(*zip(*mirrored, strict=True), marker, color=_RED, mec="white", ms=7, zorder=3)
        label = name if name == "ML" else f"{name} {record['point_kind']}"
        contour.annotate(
            f"{label}\n{record['error']:.1f}",
            (theta, rho),
            {"P3": (-6, -4), "ML": (3, -7)}.get(name, (5, 5)),
            textcoords="offset points",
            ha="right" if name == "P3" else "left",
            va="top" if name in ("P3", "ML") else "bottom",
            fontsize=7.5,
            bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.75},
        )
    contour.set_title("contours; P1 to P4 and their mirror images")
    return figure


def shallow_surfaces_figure(records: Sequence[Record]) -> Any:
    """Figure 5: the tanh network's surface as printed, without the stray terms, exact, and simulated."""
    forms = {
        "printed": "as printed (eq. 31)",
        "printed_without_stray": "as printed, without the terms lacking $c$",
        "exact": "exact (quadrature)",
        "simulated": "simulated",
    }
    surfaces = [_one(records, kind="surface", figure=5, form=form) for form in forms]
    figure, axes = _panels("AB;CD", (8.8, 6.8))
    levels = [0.26, 0.3, 0.36, 0.45, 0.6, 0.8, 1.1, 1.5, 2.0, 3.0, 5.0]
    points = _points(records, 5)
    for panel, surface, title in zip(axes, surfaces, forms.values(), strict=True):
        draws = f", {surface['num_samples']:,} draws a point" if "num_samples" in surface else ""
        _contours(figure, panel, surface, levels=levels)
        lowest = min(min(row) for row in surface["error"])
        panel.set_title(f"{title}{draws}; lowest {lowest:.3f}")
        for record, marker in zip(points, ("s", "P", "*"), strict=True):
            colour = {"s": "black", "P": _ORANGE, "*": _RED}[marker]
            label = f"{record['name']}, $\\theta={record['theta']:.3f}$"
            panel.plot([record["theta"]], [0], marker, color=colour, mec="white", mew=0.6, ms=10, label=label)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def against_c_figure(records: Sequence[Record]) -> Any:
    """Figure 6: the error against c, absolute and relative to the exact one."""
    record = _one(records, kind="against_c", figure=6)
    figure, (absolute, relative) = _panels("AB", (9.0, 3.8))
    c, dots = record["input_limit"], record["simulated_input_limit"]
    names = {"ml": ("ML", _BLUE), "pb": (r"MMSE$_{pb}$, the paper's $\theta$", _ORANGE)}
    for key, (name, colour) in names.items():
        exact = record[f"{key}_exact"]
        for form, dashes, meaning in _FORMS_OF_FIGURE_6:
            values = record[f"{key}_{form}"]
            absolute.plot(c, values, dashes, color=colour, lw=1.5, label=f"{name}: {meaning}")
            ratios = [value / reference for value, reference in zip(values[1:], exact[1:], strict=True)]
            relative.plot(c[1:], ratios, dashes, color="black" if form == "exact" else colour, lw=1.5)
        simulated, errors = record[f"{key}_simulated"], record[f"{key}_standard_error"]
        bars = {"fmt": "o", "color": colour, "ms": 3.5, "capsize": 2, "lw": 1}
        absolute.errorbar(dots, simulated, yerr=[2 * e for e in errors], label=f"{name}: simulated", **bars)
        reference = [exact[_nearest(c, at)] for at in dots]
        relative.errorbar(
            dots,
            [value / at for value, at in zip(simulated, reference, strict=True)],
            yerr=[2 * error / at for error, at in zip(errors, reference, strict=True)],
            **bars,
        )
    absolute.set(xlabel="$c$", ylabel=r"error $\bar D$", xlim=(0, 0.51), ylim=(0, None))
    absolute.legend(loc="upper left", fontsize=7)
    absolute.set_title("error against $c$; bars are two standard errors")
    relative.set(xlabel="$c$", ylabel="error / exact error", xlim=(0, 0.51))
    relative.set_title("the same, divided by the exact error")
    return figure


FIGURES: Mapping[str, Callable[[Sequence[Record]], Any]] = {
    "figure-2": relations_figure,
    "figure-3": quadratic_figure,
    "figure-5": shallow_surfaces_figure,
    "figure-6": against_c_figure,
}


def _panels(layout: str, size: tuple[float, float], **how: Any) -> tuple[Any, list[Any]]:
    """A figure and its panels: a letter each, a semicolon between rows."""
    figure = new_figure(*size)
    return figure, list(figure.subplot_mosaic(layout, **how).values())


def _relief(axes: Any, surface: Record, *, top: float, title: str) -> None:
    rho, theta = np.meshgrid(surface["rho"], surface["theta"])
    error = np.array(surface["error"])
    # Rasterised, for thousands of facets would make a vector file of megabytes.
    facets: dict[str, Any] = {"rstride": 1, "cstride": 1, "lw": 0, "rasterized": True}
    axes.plot_surface(theta, rho, np.minimum(error, top), cmap=_SURFACE_MAP, vmax=top, **facets)
    axes.set(xlabel=r"$\theta$", ylabel=r"$\rho$", zlim=(0, top))
    axes.set_title(f"{title} (cut at {top:g})")
    axes.view_init(elev=32, azim=-58)


def _contours(figure: Any, axes: Any, surface: Record, *, levels: Sequence[float]) -> None:
    from matplotlib.colors import LogNorm

    # Rows of the record are theta; a contour wants rows of the vertical axis.
    columns = list(zip(*surface["error"], strict=True))
    norm = LogNorm(vmin=levels[0], vmax=levels[-1])
    filled = axes.contourf(
        surface["theta"], surface["rho"], columns, levels=levels, norm=norm, cmap=_SURFACE_MAP, extend="both"
    )
    axes.contour(surface["theta"], surface["rho"], columns, levels=levels, colors="white", linewidths=0.4)
    ticks = [level for k, level in enumerate(levels) if k == 0 or level > 1.1 * levels[k - 1]]
    bar = figure.colorbar(filled, ax=axes, ticks=ticks, format="%g")
    bar.ax.minorticks_off()
    axes.set(xlabel=r"$\theta$", ylabel=r"$\rho$")


def _points(records: Sequence[Record], figure: int) -> list[Record]:
    return [record for record in records if record.get("kind") == "point" and record.get("figure") == figure]


def _one(records: Sequence[Record], **wanted: Any) -> Record:
    for record in records:
        if all(record.get(key) == value for key, value in wanted.items()):
            return record
    raise InvalidConfig(
        f"no record with {wanted} among {len(records)}; figures need the records of a whole `quietnn theory` run"
    )


def _nearest(axis: Sequence[float], value: float) -> int:
    return min(range(len(axis)), key=lambda index: abs(axis[index] - value))
