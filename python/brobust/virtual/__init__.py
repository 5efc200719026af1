"""The backend `virtual`: whole Linux kernels as processes (User-Mode Linux) in virtual time."""
