import os

# Tests run in parallel, so threads that wait must leave the core to others. PyTorch's threads read this at its import.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
