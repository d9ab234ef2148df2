"""Renderers of a comparison: terminal, Markdown, HTML and JSON of the same object."""
