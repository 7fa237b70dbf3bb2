// Fourier transforms.
