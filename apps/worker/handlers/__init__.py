"""How each kind of target is called."""
