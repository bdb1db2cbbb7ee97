"""The dashboard's server: labml-app on SQLite, for the user of this machine only."""

import os

# labml-app needs them to be imported. It uses them only in answers to other sites, which
# `board.server` removes.
os.environ |= {"LABML_APP_SERVER_IP": "127.0.0.1", "LABML_APP_SERVER_PORT": "5005"}
