"""Pink noise."""

import numpy as np

from agop.scenarios.noise import pink_noise


def test_amplitude_falls_with_the_frequency_and_images_are_normalised():
    noise = pink_noise(1100, 32, np.random.default_rng(0))
    assert noise.shape == (1100, 32, 32)
    np.testing.assert_allclose(noise.mean((1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(noise.std((1, 2)), 1, rtol=1e-4)
    amplitude = np.abs(np.fft.fft2(noise)).mean(0)
    for frequency in (1, 2, 4):
        assert np.isclose(amplitude[0, frequency] / amplitude[0, 2 * frequency], 2, rtol=0.1)


def test_images_differ_and_depend_on_the_generator_only():
    first, again = (pink_noise(3, 16, np.random.default_rng(5)) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.allclose(first[0], first[1])
