"""Runs compared: fairness, tests, the verdict, the page."""
