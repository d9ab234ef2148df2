"""How old trained samples were, what that saved, and what became of the tokens."""
