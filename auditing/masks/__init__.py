"""The audit of a masking function: calls it on texts with known properties and checks what comes back."""
