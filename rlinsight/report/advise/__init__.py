"""Renderers of advice: terminal and Markdown of the same object, and the catalogue of rules."""
