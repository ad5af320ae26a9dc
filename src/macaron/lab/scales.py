"""Axes: ranges, ticks, readable numbers, and long lines thinned for the screen."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


@dataclass(frozen=True)
class Scale:
    """An axis from low to high, linear or logarithmic."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def around(
        cls, values: Sequence[float], *, log: bool = False, tight: bool = False, from_zero: bool = False
    ) -> Self:
        """A scale that contains the values: with a margin, or (``tight``) from the smallest to the largest."""
        low, high = min(values), max(values)
        if log:
            if low == high:
                low, high = low / 2, high * 2
            margin = 1.0 if tight else (high / low) ** 0.04
            return cls(low / margin, high * margin, log=True)
        if from_zero:
            low, high = min(low, 0.0), max(high, 0.0)
        if high - low <= 1e-9 * max(abs(low), abs(high)):  # rounding, not a difference
            half = abs(low) / 10 or 1.0
            low, high = low - half, high + half
        margin = 0.0 if tight else (high - low) * 0.05
        # A margin below zero would suggest that values could be negative.
        return cls(0.0 if 0 <= low < margin or (from_zero and low == 0) else low - margin, high + margin)

    def share(self, value: float) -> float:
        """The position of a value: 0 at the low end, 1 at the high end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def percent(self, value: float, *, down: bool = False, whole: int = 100) -> str:
        """`share` of ``whole``; ``down`` counts from the other end, as the y of an SVG does."""
        share = 1 - self.share(value) if down else self.share(value)
        return f"{round(whole * share, 2) + 0:g}"  # never -0

    def ticks(self, most: int = 6) -> list[float]:
        """Round values to mark, about ``most`` of them."""
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for digits in ((1, 2, 5), (1, 3), (1,)):
                # Parsed from text: 10.0 ** -5 is not the float 1e-05.
                marks = [float(f"{digit}e{power}") for power in powers for digit in digits]
                found = [mark for mark in marks if self.low * (1 - 1e-9) <= mark <= self.high * (1 + 1e-9)]
                if 3 <= len(found) <= most + 1:
                    return found
            if len(found) > most:
                return found[:: math.ceil(len(found) / most)]
        raw = (self.high - self.low) / most
        power = math.floor(math.log10(raw))
        step, digits_shown = next(
            (digit * 10.0**p, -p + (digit == 2.5))
            for p in (power, power + 1)
            for digit in (1, 2, 2.5, 5)
            if digit * 10.0**p >= raw * (1 - 1e-9)
        )
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(k * step, max(digits_shown, 0)) for k in range(first, last + 1)]


def number(value: float) -> str:
    """A value to four significant digits, for reading."""
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return _power(value, 2) if 0 < abs(value) < 1e-3 else f"{value or 0:.4g}"


def tick_texts(ticks: Sequence[float], log: bool = False) -> tuple[list[str], str]:
    """The texts of ticks, and their common power of ten ("10⁻⁴", or nothing) for the axis label."""
    largest = max((abs(tick) for tick in ticks), default=0.0)
    if log:
        return [f"{tick:.6g}" if 1e-3 <= tick < 1e4 else _power(tick, 3) for tick in ticks], ""
    for least, unit, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if largest >= least:
            return ["0" if tick == 0 else f"{tick / unit:.6g}{letter}" for tick in ticks], ""
    if 0 < largest < 1e-2:
        power = math.floor(math.log10(largest))
        return [f"{tick / 10.0**power:.4g}" for tick in ticks], f"10{str(power).translate(SUPERSCRIPT)}"
    return [f"{tick:.6g}" for tick in ticks], ""


def thin(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most ``most`` points: both ends, and the lowest and highest of each segment, so that no spike is lost."""
    if len(points) <= most:
        return list(points)
    stretches = max(1, (most - 2) // 2)
    inside = len(points) - 2
    kept = [0]
    for i in range(stretches):
        part = range(1 + i * inside // stretches, 1 + (i + 1) * inside // stretches)
        kept += sorted({min(part, key=lambda k: points[k][1]), max(part, key=lambda k: points[k][1])})
    return [points[k] for k in (*kept, len(points) - 1)]


def _power(value: float, digits: int) -> str:
    mantissa, power = f"{value:.{digits}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".")
    ten = f"10{str(int(power)).translate(SUPERSCRIPT)}"
    return ten if mantissa == "1" else f"-{ten}" if mantissa == "-1" else f"{mantissa}×{ten}"


def duration(seconds: float) -> str:
    """A time such as ``3 h 05 min``, ``4 min 12 s`` or ``9 s``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
