"""What the framework itself reports, and where it misleads."""
