"""How the things that ship were made."""
