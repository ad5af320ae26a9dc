"""The lab: figures, comparisons, the demo."""
