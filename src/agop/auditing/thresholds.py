"""Thresholds: the nine decisions of an audit, and sizes of its computation.

Chosen on SmallResNet on CIFAR-10 and Fashion-MNIST, seeds from 100 on. docs/audit-rules.md has the rules in a figure,
and what each threshold does at half and at twice its value.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """When something counts in an audit."""

    # Share of images, of an effect or of a region that doesn't count: a smaller group of images are outliers.
    negligible: float = 0.08
    # Share that counts as all: of an effect that remains in a part of a region, or of what a test needs.
    nearly: float = 0.9
    # Ashman's D of clear groups. A normal distribution has 2.7, a uniform one 3.5. Clean networks of the selection data
    # have 2.1 to 3.5, planted patterns 4.1 to 35.7.
    separation: float = 3.6
    # How much clearer groups must be if something else could be the reason. An ignored frame in half of all images had
    # D 29, the colours of the class without it 5.5. Also for what a whole class shares, unless it is nearly the same in
    # all images: six of 18 clean CNNs on 8×8 digits had such a window, with D 4.1 to 8.1; a watermark has 7.9.
    clearer: float = 2.0
    # Correlation of two groups of images from which one may be the reason for the other.
    associated: float = 0.6
    # Correlation from which two patches look the same. Alone it isn't enough: 2×2 or 3×3 pixels look like some place of
    # every textured image, so patches that should be absent are compared as well.
    alike: float = 0.75
    # Difference of the groups' mean responses, in log-odds.
    gap: float = 0.25
    # P(class) must rise by this much more than with the strongest control on the second half, and on the first half
    # than with donors without the pattern: natural groups of Fashion-MNIST, with D up to 5.7, have 0.015.
    margin: float = 0.05
    # Probability of a false alarm in an audit, after Holm's correction. A p value of up to four times as much is close.
    level: float = 0.05

    @property
    def close(self) -> float:
        """P value up to which a test that isn't significant is listed."""
        return 4 * self.level


THRESHOLDS = Thresholds()

# Images of a class that suffice for two halves: ten in each, where D must be 11 for a p value of 0.001. Images of a
# class in a half from which statistics are combined, and of the smaller of two groups.
IMAGES_OF_A_CLASS, IMAGES_TO_COMBINE, SMALLEST_GROUP = 20, 32, 4
# Images of other classes per image of the class, whose mean says what is usual.
OTHERS_PER_IMAGE = 2
# Share of the image that a region has, at most: larger patterns aren't found as regions.
LARGEST_REGION = 0.1
# Images that what is proposed is pasted into: at first look, after refinement, and in the test. With 2 of all images in
# the first look: AUROC 0.978 and 30 of 33 found in the benchmark. With 50 images: 28 of 33. Without one, a false alarm.
LOOK_HOSTS, SCREENING_HOSTS, TEST_HOSTS = 2, 4, 8
# Pairs of images for the effect on P(class): on the first half, and in the test. With 32 on the first half, boxes of
# faint watermarks were cut, and half of what passed failed in the test.
CONTRAST_PAIRS, TEST_PAIRS = 128, 300
