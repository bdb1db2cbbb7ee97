"""The dashboard: labml's own server and page on an embedded database, for the one user of this machine."""
