"""The colours of maps, for pages and pictures alike. No torch here: a report has them, too."""

# Every 32nd colour of matplotlib's inferno: perceptually uniform, and monotone in lightness.
INFERNO = (
    (0, 0, 4), (31, 12, 72), (85, 15, 109), (136, 34, 106), (186, 54, 85),
    (227, 89, 51), (249, 140, 10), (249, 201, 50), (252, 255, 164),
)  # fmt: skip
