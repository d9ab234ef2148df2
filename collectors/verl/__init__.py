"""Hooks that record a verl run from inside its own processes, without editing verl."""
