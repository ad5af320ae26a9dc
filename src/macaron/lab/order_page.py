"""The order page: the errors of schemes against their step, with the measured slopes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from macaron.lab.charts import Series, line_chart
from macaron.lab.page import html_table, render_page, section, write_page
from macaron.ode.catalogue import ALIASES
from macaron.ode.measure import OrderMeter, parse_selection
from macaron.ode.word_series import Array

# Transformer and Macaron, both as networks compute them (Euler) and as the theorem has them (exact sub-flows); then
# schemes up to fourth order with exact sub-flows.
ORDER_SELECTION = (
    *("lie-fg:euler", "strang-gfg:euler"),
    *("lie-fg", "strang-gfg", "best22-fgfg", "ruth3-fg", "yoshida4-gfg", "blanes-moan4-g"),
)
# From a whole unit of time down to where the steepest lines reach rounding.
DRAWN_STEPS: Array = 2.0 ** -np.arange(0, 9.25, 0.5)


def scheme_label(name: str, method: str = "") -> str:
    """The name of a scheme, of its network, and, if given, of its integrator: ``strang-gfg (Macaron), euler``."""
    networks = {scheme: f" ({alias.capitalize()})" for alias, scheme in ALIASES.items()}
    return name + networks.get(name, "") + (f", {method}" if method else "")


def write_order_page(path: Path, selection: Sequence[str] = ORDER_SELECTION) -> None:
    """Write the page: the local error against the step, the geometric mean over all systems; and the slopes."""
    drawn, meter = OrderMeter(steps=DRAWN_STEPS), OrderMeter()
    chosen = parse_selection(selection)
    names = list(dict.fromkeys(scheme.name for scheme, _ in chosen))
    lines, slopes = [], []
    for scheme, method in chosen:
        errors = np.exp(np.mean(np.log(drawn.errors(scheme, method)), axis=1))
        points = list(zip(DRAWN_STEPS.tolist(), errors.tolist(), strict=True))
        label, colour = scheme_label(scheme.name, method), names.index(scheme.name)
        lines.append(Series(label, points[::-1], colour, dashed=method != "exact"))
        slopes.append((label, f"{meter.local_order(scheme, method):.2f}"))
    title, y_label = "Error of one step against the step", "error of one step"
    chart = line_chart(lines, title=title, x_label="step γ", y_label=y_label, log_x=True, log_y=True, height=420)
    headers = ["scheme, integrator of the sub-flows", "slope"]
    table = html_table(headers, slopes, caption="The slopes, measured", numeric=[1])
    heading = "Local error of splitting schemes on a particle system"
    write_page(path, render_page(heading, section("Errors", chart, table)))
