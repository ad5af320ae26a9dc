"""Serving: models behind HTTP, for programs that speak a translation API and for people with a browser."""
