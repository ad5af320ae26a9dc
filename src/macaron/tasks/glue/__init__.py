"""GLUE: the runs of a grid, their results, the submission."""
