"""Corpora: how they are made, stored and read."""
