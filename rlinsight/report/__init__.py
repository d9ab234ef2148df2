"""Renderers of result objects: text, JSON."""
