"""From text to masked batches: corpus -> vocabulary -> windows -> masked batches.

Nothing here imports the model, training, configs or labml. Messages for users may name config keys.
"""
