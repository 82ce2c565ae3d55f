"""Thresholds: when something counts in an audit, and how many images it takes. Each with the measurement behind it.

Selection data: SmallResNet on CIFAR-10 and Fashion-MNIST, seeds from 100 on (docs/decisions: "A shortcut is all or
nothing"). Benchmark: 57 models on CIFAR-10, seeds 3 to 5 (docs/results/shortcuts.md).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """All thresholds of an audit."""

    # --- Images
    # Images of a class that suffice for two halves: ten in each, where D must be 11 for a p value of 0.001.
    images_of_a_class: int = 20
    # Side of the smallest images in which windows and patches fit.
    smallest_side: int = 4

    # --- Two groups
    # The smaller group has at least this share of the images, and at least this many: fewer are outliers.
    smallest_share: float = 0.08
    smallest_group: int = 4
    # Ashman's D of clear groups. A normal distribution has 2.7, a uniform one 3.5. Clean networks of the selection data
    # have 2.1 to 3.5, planted patterns 4.1 to 35.7.
    separation: float = 3.6
    # D of what a whole class shares, unless the mean of its fine structure has at least this norm (1: all images are
    # the same there). Six of 18 clean CNNs on 8×8 digits had such a window, with D 4.1 to 8.1; a watermark has 7.9.
    shared_separation: float = 7.2
    shared_norm: float = 0.9
    # Images of a class from which statistics are combined. Not measured.
    images_to_combine: int = 32
    # Images of other classes per image of the class, whose mean says what is usual.
    others_per_image: int = 2

    # --- Candidates
    # Standard deviations of split halves above which a pixel of the diagonal stands out, lowest first: a region is
    # taken at the first one at which it is small enough. Not measured.
    standout: tuple[float, ...] = (3.0, 5.0, 8.0, 12.0)
    # A region has at most this share of the image. Not measured: larger patterns aren't found as regions.
    largest_region: float = 0.1
    # Candidates per class: of the diagonal and of what images show, of the scan, and patches that move.
    regions_of_a_class: int = 2
    windows_of_a_class: int = 3
    patches_of_a_class: int = 2
    # Correlation from which two patches look the same. Alone it isn't enough: 2×2 or 3×3 pixels look like some place of
    # every textured image, so patches that should be absent are compared as well.
    alike: float = 0.75
    # Share of images that may look less like a patch that should be absent than an image that has the pattern.
    usual: float = 0.95

    # --- Screening on the first half
    # Donors of the scan; hosts of the first look, and of the screening after refinement. With all images and 2 hosts
    # in the first look: AUROC 0.978 and 30 of 33 found in the benchmark. With 50 images: 28 of 33. With the same hosts
    # and no first look, one false alarm in 21.
    scan_donors: int = 20
    look_hosts: int = 2
    screening_hosts: int = 4
    # Share of the separation and gap below which a candidate isn't screened again. Not measured.
    promising: float = 0.9
    # Difference of the groups' mean responses, in log-odds. Not measured.
    gap: float = 0.25
    # Rise of P(class) in `contrast_pairs` images, beyond that with donors without the pattern. Natural groups of
    # Fashion-MNIST, with D up to 5.7, have 0.015. Without it, half of the passes refined windows that a test
    # rejected.
    rise: float = 0.02
    contrast_pairs: int = 32
    # Groups are those of another candidate without effect that is this much clearer, from this correlation on. An
    # ignored frame in half of all images had D 29; the colours of the class without it had D 5.5.
    clearer: float = 2.0
    associated: float = 0.6

    # --- Refinement of a region
    # A side moves outwards if that adds this share to the effect, and inwards while this share remains.
    added: float = 0.08
    kept: float = 0.9
    # A pixel belongs to a pattern if its mean differs by this many standard deviations of the images that contain it.
    # Not measured.
    unlike: float = 2.0
    # A region along the edge with less than this share of the border's effect is a part of the border.
    part_of_border: float = 0.8
    # Regions of a class that overlap more than this are one region.
    same_region: float = 0.1

    # --- Tests on the second half
    # Hosts that what is tested is pasted into, and pairs of images.
    test_hosts: int = 8
    test_pairs: int = 300
    # The effect on P(class) must be this much above that of the strongest control.
    margin: float = 0.05
    # Probability of a false alarm in an audit, after Holm's correction.
    level: float = 0.05
    # P value up to which a test that isn't significant is listed as close.
    close: float = 0.2
    # Share of images without a region's pattern that have it at another place, from which it is an object that moves.
    # Without this, regions that an object is inside of in some images were false alarms.
    moved: float = 0.5


THRESHOLDS = Thresholds()
