"""The steps of `make gpu`, each in a process of its own; `plan` lists them."""
