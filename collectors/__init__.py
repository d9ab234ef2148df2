"""Everything that produces a trace."""
