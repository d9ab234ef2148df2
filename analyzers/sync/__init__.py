"""Weight syncs, stage by stage."""
