"""Loads trained runs and fills blanks with them."""
