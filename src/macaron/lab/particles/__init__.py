"""The words of a sentence as particles: states, projection, diagnostics, figures, the page."""
