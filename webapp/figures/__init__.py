"""Plotly figures, one module per page, drawn from the results of the analyzers."""
