"""Renderers of a tuning: Markdown and terminal of the same log."""
