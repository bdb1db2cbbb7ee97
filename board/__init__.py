"""The dashboard's server: labml-app on SQLite, for the user of this machine only."""
