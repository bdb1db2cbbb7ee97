"""Text to masked batches: corpus -> vocabulary -> windows -> masked batches.

Plain PyTorch and NumPy. Nothing here knows of the model, of labml or of configs.
"""
