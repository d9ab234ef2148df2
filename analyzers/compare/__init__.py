"""Any number of runs side by side: what was set differently, what came of it, what is real."""
