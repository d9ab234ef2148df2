"""Foreign files brought into a trace, one module per format."""
