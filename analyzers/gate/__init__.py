"""Whether a run is slower than the runs that were accepted before it."""
