"""The lab: particles, comparisons, twins, reports, figures, the demo."""
