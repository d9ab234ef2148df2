"""Dash pages and figures over the results of the analyzers."""
