"""How evenly replicas and ranks are loaded, and how fast they are."""
