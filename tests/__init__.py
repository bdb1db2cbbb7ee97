import os

# Tests run in parallel, so threads that wait must leave the core to others. PyTorch's threads read
# this at its import.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# For each new folder of compiled code, PyTorch would compile a program that tells whether the
# compiler knows AVX.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
