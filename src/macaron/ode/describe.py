"""A scheme described: the equations of its layer, its order, its sub-layers."""

from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from macaron.ode.measure import METHODS, expected_local_order
from macaron.ode.scheme import Scheme
from macaron.ode.velocity import PLAIN, Velocity
from macaron.ode.word_series import Branch

# Names of branches. x is the input and t the time.
LETTERS = "abcdefghijklmnopqrsuvwyz"
# The operators of a network.
MEANING = {"F": "self-attention", "G": "feed-forward", "H": "cross-attention"}


def summary(scheme: Scheme) -> dict[str, Any]:
    """The computed properties of a scheme, as plain data."""
    return {
        **scheme.to_dict(),
        "order": scheme.order,
        "leading_error": scheme.leading_error,
        "euler_error": scheme.euler_error,
        "symmetric": scheme.is_symmetric,
        "positive": scheme.is_positive,
        "applications": {operator: scheme.applications(operator) for operator in scheme.operators},
        "expected_local_order": {method: expected_local_order(scheme, method) for method in METHODS},
        "equations": equations(scheme),
    }


def report(scheme: Scheme) -> str:
    """The same as text."""
    names = {op: f" ({MEANING[op]})" if op in MEANING else "" for op in scheme.operators}
    layers = ", ".join(f"{scheme.applications(op)} {op}{name}" for op, name in names.items())
    kinds = {"symmetric": scheme.is_symmetric, "no negative step": scheme.is_positive}
    kind = ", ".join(word for word, holds in kinds.items() if holds)
    euler = _sum((c, pair) for pair, c in scheme.euler_error.items() if abs(c) > 1e-12)
    local = ", ".join(f"{method} {expected_local_order(scheme, method)}" for method in METHODS)
    layer = "\n    ".join(equations(scheme))
    return f"""{scheme.name}: {steps_text(scheme)}

layer, with Euler sub-steps, from x at time t over a step γ:
    {layer}

sub-layers     {layers}
order          {scheme.order}{kind and f" ({kind})"}
leading error  {scheme.leading_error:.3g} γ^{scheme.order + 1} with exact sub-flows (norm over words)
Euler error    γ²/2 ({euler}) with Euler sub-steps
local order    by integrator: {local}

A plain residual layer takes Euler sub-steps. They are of first order, so its local order is 2."""


def steps_text(scheme: Scheme) -> str:
    """The sub-steps on one line, in order of application: ``G 1/2, F 1, G 1/2``."""
    texts = [", ".join(f"{op} {number(c)}" for op, c in steps) or "identity" for _, steps in scheme.branches]
    if scheme.is_sequential:
        return texts[0]
    return _sum((branch.weight, f"({text})") for branch, text in zip(scheme.branches, texts, strict=True))


def equations(scheme: Scheme, form: Velocity = PLAIN, layer: str = "euler") -> list[str]:
    """The layer with Euler sub-steps, or kicks and drifts of a velocity; γ is the step, t the time at its start."""
    notes = [] if layer == "euler" else [f"{layer}, whose field is the move x' - x of these"]
    if not form.plain:
        kick = f"v = {_sum([(form.beta, 'v'), (1.0, 'c γ O(x' + _term(form.mu, 'v') + ')')])}"
        drift = f"x' = x{_term(form.nu, 'v')}"
        learned = "" if form.learned == "no" else " (at first: learned)"
        notes.append(f"each x + c γ O(x) is {kick}, then {drift}{learned}")
    if scheme.is_sequential:
        return [*_chain(scheme.branches[0], "x", "x'"), *notes]
    lines: list[str] = []
    parts: list[tuple[float, str]] = []
    for i, branch in enumerate(scheme.branches):
        letter = LETTERS[i] if i < len(LETTERS) else f"z{i}_"
        lines += _chain(branch, letter, letter)
        parts.append((branch.weight, letter if branch.steps else "x"))
    return [*lines, f"x' = {_sum(parts)}", *notes]


def number(value: float) -> str:
    """A coefficient as a small fraction if it is one, otherwise with six decimals."""
    fraction = Fraction(value).limit_denominator(120)
    return str(fraction) if abs(value - fraction) < 1e-15 else f"{value:.6f}"


def _chain(branch: Branch, letter: str, result: str) -> list[str]:
    clocks: dict[str, float] = defaultdict(float)
    names = ["x", *(f"{letter}{i}" for i in range(1, len(branch.steps))), result]
    width = max(map(len, names))
    lines = []
    for (operator, coefficient), before, after in zip(branch.steps, names, names[1:], strict=False):
        time = f"t{_term(clocks[operator], 'γ')}"
        lines.append(f"{after:{width}} = {before}{_term(coefficient, f'γ {operator}({before}, {time})')}")
        clocks[operator] += coefficient
    return lines


def _sum(parts: Iterable[tuple[float, str]]) -> str:
    return "".join(_term(weight, what) for weight, what in parts).removeprefix(" + ").strip()


def _term(value: float, factor: str) -> str:
    # A clock that ran forwards and backwards may differ from zero by rounding.
    if abs(value) < 1e-15:
        return ""
    size = number(abs(value))
    return f" {'-' if value < 0 else '+'} {'' if size == '1' else size + ' '}{factor}"
