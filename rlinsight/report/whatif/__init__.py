"""Renderers of predictions: terminal, Markdown, HTML and JSON of the same objects."""
