"""The parts of the search: regions, groups, candidates, effects on pairs, tests, and what is chosen and reported."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from agop.auditing.audit import NEW, REDUCED, REMOVED, STRONGER, UNCHANGED, UNCLEAR, detectable, verdict
from agop.auditing.candidates import (
    BORDER,
    COLOUR,
    PATCH,
    REGION,
    PatchCandidate,
    SwapCandidate,
    hot_corners,
    patch_candidates,
    scan,
    standouts,
    windows,
    windows_in_images,
)  # fmt: skip
from agop.auditing.data import Predictions, Split
from agop.auditing.findings import subject_in_words
from agop.auditing.groups import Groups, Rule, clearest_rule, discriminant, p_uniform, separations, shared_rule
from agop.auditing.interventions import Border, Colour, Remove, Transplant, TransplantElsewhere, patch_index
from agop.auditing.regions import (
    Box,
    best_matches,
    box_of,
    extent,
    grown,
    overlap,
    share_alike,
    smoothed,
)
from agop.auditing.search import has_groups_of_another, may_be_the_object
from agop.auditing.tests import Screening, Trial, p_more_often, screen, trial_on, variety, without_absences
from agop.evaluation.select import Priors
from agop.model.probe import probing
from agop.prior.agop import AGOP
from agop.stats import Mean, quantile


def random(*shape, seed=0, dtype=torch.float32):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def generator():
    return torch.Generator().manual_seed(0)


def split_of(images, labels):
    return Split(images, labels, tuple(map(str, range(len(labels)))))


@pytest.fixture
def predicted():
    """Predictions of a model, at most 64 images at once."""
    open_models = []

    def predictions(model, images, labels, rows=64):
        context = probing(model)
        open_models.append(context)
        return Predictions.of(context.__enter__(), rows, split_of(images, labels))

    yield predictions
    for context in open_models:
        context.__exit__(None, None, None)


def without_model(split):
    """Predictions that can't be asked: there is no model."""
    return Predictions(None, 0, split, torch.zeros(len(split.labels), 2))


# --- Regions


def test_boxes():
    box = Box(2, 3, 5, 7)
    region = box.region((8, 9))
    assert box_of(region) == box
    assert box.overlaps(Box(4, 6, 8, 9))
    assert not box.overlaps(Box(5, 3, 8, 7))
    assert overlap(region, Box(2, 3, 5, 5).region((8, 9))) == 0.5
    assert torch.equal(grown(region, 2), Box(0, 1, 7, 9).region((8, 9)))


@pytest.mark.parametrize(
    ("box", "words"), [(Box(0, 0, 4, 4), "top left"), (Box(8, 4, 12, 8), "bottom"), (Box(4, 4, 8, 8), "centre")]
)
def test_place_of_a_region_in_words(box, words):
    assert subject_in_words(region(box=box)) == f"A {box.height}×{box.width} region at the {words}"


def test_extent_is_that_of_the_pattern_not_of_the_core():
    containing, others = random(30, 2, 20, 20), random(60, 2, 20, 20, seed=1)
    assert extent(containing, others, Box(5, 11, 7, 13)) is None  # no common pattern
    assert extent(containing / 10, 1 - others / 10, Box(5, 11, 7, 13)) is None  # over the whole image
    containing[:, :, 4:9, 10:16] = ((torch.arange(5)[:, None] + torch.arange(6)) % 2).float()
    for core in (Box(5, 11, 7, 13), Box(2, 9, 7, 13)):
        assert extent(containing, others, core) == Box(4, 10, 9, 16)


def test_best_match_equals_a_loop_over_places():
    images, patches = random(3, 2, 9, 11), random(2, 2, 3, 5, seed=1)
    matches = best_matches(images, patches)
    for t, patch in enumerate(patches):
        for n, image in enumerate(images):
            scores = {}
            for row in range(7):
                for column in range(7):
                    window = image[:, row : row + 3, column : column + 5]
                    both = torch.stack([patch.flatten(), window.flatten()])
                    scores[row, column] = float(torch.corrcoef(both)[0, 1])
            best = max(scores, key=scores.get)
            assert tuple(matches.corners[t, n].tolist()) == best
            torch.testing.assert_close(float(matches.correlation[t, n]), scores[best], rtol=1e-4, atol=1e-4)


def test_share_of_images_with_one_of_the_patches():
    images, patches = random(8, 1, 16, 16), random(2, 1, 4, 6, seed=1)
    for place in range(3):
        images[place, :, 2 * place : 2 * place + 4, 3 * place : 3 * place + 6] = 0.5 * patches[place % 2] + 0.2
    assert share_alike(images, patches, images[:2, :, 12:16, 10:16]) == 3 / 8
    assert share_alike(images, torch.full((1, 1, 3, 3), 0.5), images[:1, :, :3, :3]) == 0  # no structure


@pytest.mark.parametrize("side", [2, 3])
def test_a_small_patch_that_looks_like_some_place_of_every_image_does_not_count(side):
    images = smoothed(random(30, 20, 20), 3)[:, None]
    steps = torch.arange(side)
    checker = ((steps[:, None] + steps) % 2).float()[None, None]
    assert share_alike(images, checker, images[:5, :, :side, :side]) <= 0.1
    images[:, :, 10 : 10 + side, 10 : 10 + side] = checker
    assert share_alike(images, checker, images[:5, :, :side, :side]) > 0.9


@pytest.mark.parametrize("side", [4, 6])
def test_an_object_that_moves_counts(side):
    images, thing = 0.2 * random(30, 1, 20, 20), random(1, 1, side, side, seed=1)
    for image, (top, left) in zip(images, torch.randint(6, 20 - side, (30, 2), generator=generator()), strict=True):
        image[:, top : top + side, left : left + side] = thing
    assert share_alike(images, thing, images[:5, :, :side, :side]) > 0.9


# --- Two groups, and the rules that say which images contain a pattern


def sample(seed, *clusters):
    """Normal values in random order: (count, mean) per cluster, with standard deviation 1."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.cat(
        [mean + torch.randn(count, generator=generator, dtype=torch.float64) for count, mean in clusters]
    )
    return values[torch.randperm(len(values), generator=generator)]


def otsu(values):
    """The upper group, Ashman's D and the difference of the means, from every split with enough values on each side."""
    ordered = values.sort().values
    fewest = max(4, math.ceil(0.08 * len(values)))

    def between(size):
        low, high = ordered[:size], ordered[size:]
        return len(low) * len(high) * float(high.mean() - low.mean()) ** 2

    size = max(range(fewest, len(values) - fewest + 1), key=between)
    low, high = ordered[:size], ordered[size:]
    gap = float(high.mean() - low.mean())
    spread = math.sqrt(float(low.var(correction=0) + high.var(correction=0)) / 2)
    return values >= high[0], gap / spread, gap


@pytest.mark.parametrize("clusters", [[(40, 0)], [(30, 0), (10, 8)], [(60, 0), (5, 9)], [(8, 0)]])
@pytest.mark.parametrize("offset", [0, 1e8])
def test_groups_are_those_of_otsu(clusters, offset):
    """A large mean doesn't change them."""
    values = sample(0, *clusters) + offset
    groups = Groups.of(values)
    high, separation, gap = otsu(values)
    assert torch.equal(groups.high, high)
    assert groups.separation == pytest.approx(separation, rel=1e-6)
    assert groups.gap == pytest.approx(gap)
    assert float(separations(torch.stack([noise(0, len(values)), values], dim=1))[1]) == pytest.approx(separation)


@pytest.mark.parametrize("count", [10, 50, 100])
@pytest.mark.parametrize(
    "shape", [torch.clone, torch.exp, lambda values: values.clamp_min(0), lambda values: values.clamp_min(0.7)]
)
def test_values_of_one_group_rarely_form_two_also_if_they_are_skewed_or_clipped(count, shape):
    values = shape(noise(1, 1000, count))
    ps = torch.tensor([Groups.of(row).p for row in values])
    assert (ps < 0.05).sum() <= 78  # 5 % of 1000, plus four standard errors
    assert (ps < 0.005).sum() <= 14


@pytest.mark.parametrize("count", [10, 40, 100])
def test_two_clusters_form_groups(count):
    clusters = [Groups.of(sample(seed, (count - count // 2, 0), (count // 2, 12))).p for seed in range(20)]
    assert max(clusters) < (1e-3 if count > 10 else 1e-2)  # ten uniform values have D 11 or more in one case of 1000


def test_equal_values_have_no_groups():
    groups = Groups.of(torch.full((20,), 3.0))
    assert (groups.separation, groups.gap) == (0, 0)
    assert groups.p > 0.99


@pytest.mark.parametrize("count", [10, 40, 100])
def test_small_p_values_of_uniform_values_are_as_rare_as_they_say(count):
    """The separation of uniform values has a long upper tail."""
    values = torch.rand(count, 20_000, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    ps = [p_uniform(separation, count) for separation in separations(values).topk(400).values.tolist()]
    assert sum(p <= 0.01 for p in ps) <= 300
    assert 5 <= sum(p <= 0.001 for p in ps) <= 40


def noise(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def weak_statistics(seed, count=80, columns=24, difference=1.6):
    """Each statistic differs a little between the two groups. Half of the images are in the upper one."""
    contains = torch.arange(count) % 4 < 2
    return contains, noise(seed, count, columns) + difference * contains[:, None]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_combination_separates_what_no_statistic_does_also_in_other_images(sign):
    """With the sign −1, the images of the lower group contain it: the model responds to them."""
    contains, statistics = weak_statistics(0)
    responses = noise(1, 80) + 2 * contains  # overlapping
    assert max(float(separations(statistics).max()), Groups.of(responses).separation) < 3.6
    rule = clearest_rule(responses, sign * statistics, noise(9, 80, 24))
    contained, groups = rule.split(responses, sign * statistics)
    assert torch.equal(contained, contains)
    assert groups.p < 1e-3
    others, their_statistics = weak_statistics(7)
    contained, _ = rule.split(noise(8, 80), sign * their_statistics)
    assert (contained == others).double().mean() > 0.95


def test_a_faint_pattern_of_one_class_is_found_by_comparing_it_with_other_classes():
    """Each of many statistics differs less than its noise, and the responses say nothing."""
    contains = torch.arange(100) % 5 < 4
    statistics = noise(0, 100, 300) + 0.7 * contains[:, None]
    rule = clearest_rule(noise(1, 100), statistics, noise(2, 200, 300))
    assert (rule.split(noise(1, 100), statistics)[0] == contains).double().mean() in (0, 1)


def test_on_noise_the_rule_has_no_groups_in_other_images():
    """Many statistics always separate the images that choose the combination, but not others."""
    small = 0
    for seed in range(12):
        rule = clearest_rule(noise(seed, 60), noise(100 + seed, 60, 200), noise(400 + seed, 120, 200))
        _, groups = rule.split(noise(200 + seed, 60), noise(300 + seed, 60, 200))
        small += groups.p < 0.05
    assert small <= 2


def test_responses_decide_if_they_are_clearer():
    contains = torch.arange(60) % 3 == 0
    rule = clearest_rule(noise(0, 60) + 20 * contains, noise(1, 60, 5), noise(2, 60, 5))
    assert rule.weights is None
    assert rule.upper


@pytest.mark.parametrize(("count", "columns"), [(31, 5), (60, 0)])
def test_few_images_or_no_statistics_leave_the_responses(count, columns):
    assert clearest_rule(noise(0, count), noise(1, count, columns), noise(2, count, columns)).weights is None


def test_discriminant_solves_fishers_equation():
    high = torch.arange(50) < 20
    statistics = noise(0, 50, 4) + torch.tensor([0.0, 1.0, 2.0, 3.0]) * high[:, None]
    means = statistics[high].mean(dim=0), statistics[~high].mean(dim=0)
    centred = torch.cat([statistics[high] - means[0], statistics[~high] - means[1]])
    within = centred.T @ centred / 50
    ridge = within.diagonal().mean() * torch.eye(4, dtype=torch.float64)
    torch.testing.assert_close((within + ridge) @ discriminant(statistics, high), means[0] - means[1])


def test_a_class_is_a_group_only_if_nearly_all_of_its_images_differ_clearly_from_others():
    """Ordinary evidence for a class also differs from other classes, but in all degrees."""
    others = noise(0, 120, 40)
    rule = shared_rule(noise(1, 60, 40) + 3, others)
    assert rule is not None
    assert (
        rule.split(noise(2, 120), torch.cat([noise(3, 60, 40) + 3, others[:60]]))[0].tolist()
        == [True] * 60 + [False] * 60
    )
    assert shared_rule(noise(1, 60, 40) + 0.3, others) is None  # overlapping
    assert shared_rule(noise(1, 60, 40), others + 3) is None  # the others have it, the class lacks it
    some = torch.arange(60)[:, None] % 5 > 0
    assert shared_rule(noise(1, 60, 40) + 3 * some, others) is None  # four of five images


# --- Candidates


def prior(seed, empty):
    """Random diagonals of three classes, and of classes without images, which have NaN."""
    diagonals = random(3, 1, 12, 12, seed=seed, dtype=torch.float64) + 0.5
    diagonals = torch.cat([diagonals, torch.full((empty, 1, 12, 12), torch.nan, dtype=torch.float64)])
    return AGOP(diagonals[:3].mean(dim=0), 30, diagonals, torch.tensor([10] * 3 + [0] * empty))


def test_classes_without_images_do_not_lower_the_noise():
    few, many = (
        standouts(Priors(prior(0, empty), (prior(1, empty), prior(2, empty))), random(8, 1, 12, 12))[:3]
        for empty in (0, 20)
    )
    torch.testing.assert_close(few, many)


TEXT = Box(6, 3, 9, 14)  # a faint line of text, wider than a square


def with_text(share):
    """160 images of two classes in noise. This share of class 1 has the text."""
    draws = generator()
    images, labels = torch.rand(160, 1, 16, 16, generator=draws), torch.arange(160) % 2
    text = (torch.rand(TEXT.height, TEXT.width, generator=draws) > 0.5).float()
    has = (labels == 1) & (torch.rand(160, generator=draws) < share)
    region = images[has, 0, TEXT.top : TEXT.bottom, TEXT.left : TEXT.right]
    images[has, 0, TEXT.top : TEXT.bottom, TEXT.left : TEXT.right] = 0.5 * region + 0.5 * text
    return split_of(images, labels), text


def test_windows_with_a_pattern_that_other_classes_lack_come_first():
    (first, *_), shared = windows_in_images(without_model(with_text(0.7)[0]), 1, generator())
    assert first.overlaps(TEXT)
    assert first.width > first.height  # the text is longer than a square
    assert shared == []
    whole_class = without_model(with_text(1.0)[0])
    _, (first, *_) = windows_in_images(whole_class, 1, generator())
    assert first.overlaps(TEXT)
    assert windows_in_images(whole_class, 0, generator())[1] != [first]


class ReadsText(nn.Module):
    """P(class 1) rises if the middle half of the text's pixels looks like it."""

    def __init__(self, text):
        super().__init__()
        self.text = text - text.mean()

    def forward(self, images):
        seen = images[:, 0, TEXT.top : TEXT.bottom, TEXT.left : TEXT.right] - 0.5
        logit = (seen * self.text).sum(dim=(1, 2)) - 2
        return torch.stack([-logit, logit], dim=1)


def test_scan_lengthens_the_clearest_squares(predicted):
    split, text = with_text(0.5)
    first, *_ = scan(predicted(ReadsText(text), split.images, split.labels), 1, generator())
    squares, strips = windows((16, 16))
    assert first in strips
    assert any(first.contains(square) and square.overlaps(TEXT) for square in squares)
    assert first.overlaps(TEXT)


def stickers():
    """Noise (12,1,32,32) with a sticker at random places of nine images, maps that are hot there, and the places."""
    images, sticker = random(12, 1, 32, 32), random(1, 5, 5, seed=1)
    places = torch.randint(0, 27, (12, 2), generator=generator())
    maps = 0.1 * random(12, 32, 32, seed=2)
    for index, (row, column) in enumerate(places.tolist()):
        if index < 9:
            images[index, :, row : row + 5, column : column + 5] = sticker
        maps[index, row : row + 5, column : column + 5] += 1
    return images, maps, places, sticker


@pytest.mark.parametrize("with_ramp", [False, True])
def test_images_with_the_sticker_are_the_first_group(with_ramp):
    """A smooth ramp is hot in all images of the class, but also in others."""
    images, maps, places, sticker = stickers()
    others = random(12, 1, 32, 32, seed=9)
    assert torch.equal(hot_corners(maps, 5)[:, 0], places)
    if with_ramp:
        images[:, :, :5, :5] = others[:, :, 9:14, 9:14] = torch.linspace(0, 1, 5)
        maps[:, :5, :5] = 2
        for index, (row, column) in enumerate(places[:9].clamp_min(6).tolist()):
            images[index, :, row : row + 5, column : column + 5] = sticker
            maps[index, row : row + 5, column : column + 5] = 1
    candidate, *_ = patch_candidates(0, images, maps, others, seed=0)
    assert torch.equal(candidate.template, sticker)
    matches = candidate.matches(images)
    assert torch.equal(matches.correlation > 0.99, torch.arange(12) < 9)
    found = images[:9][patch_index(matches.corners[:9], 5)].movedim(-1, 1)
    assert torch.equal(found, sticker.expand(9, -1, -1, -1))


# --- Effects and tests

KEEP = torch.zeros(8, 8, dtype=torch.bool)
KEEP[:3] = True
CORNERS = torch.randint(0, 5, (10, 2), generator=generator())


@pytest.mark.parametrize("intervention", [Colour(), Remove(~KEEP), TransplantElsewhere(CORNERS, 3, seed=2)])
@pytest.mark.parametrize("keep", [None, KEEP])
def test_parts_give_what_all_pairs_give(predicted, intervention, keep):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 2)).double().eval()
    images, labels = random(20, 1, 8, 8, dtype=torch.float64), torch.arange(20) % 2
    effects = []
    for rows in (100, 3):
        predictions = predicted(net, images, labels, rows)
        effects.append(predictions.pairs(1, predictions.members(1), 10, generator()).effect(intervention, keep))
    torch.testing.assert_close(effects[0].log_odds, effects[1].log_odds)


SIZE = (6, 6)
PIXEL = SwapCandidate(REGION, 1, "scan", Transplant(Box(1, 1, 2, 2).region(SIZE)))


class FirstPixel(Transplant):
    """Its statistic is the pixel itself."""

    def __init__(self):
        super().__init__(torch.ones(1, 1, dtype=torch.bool))

    def statistics(self, images):
        return images[:, :, 0, 0]


class OnePixel(nn.Module):
    """P(class 1) rises with one pixel."""

    def forward(self, images):
        logit = 8 * images[:, 0, 1, 1] - 4
        return torch.stack([-logit / 2, logit / 2], dim=1)


@pytest.fixture
def one_pixel(predicted):
    """40 images of class 1, the last two without a bright pixel, but one of them hardly darker; 200 of class 0."""
    images = torch.zeros(240, 1, *SIZE)
    images[:38, :, 1, 1] = 1
    images[38, :, 1, 1] = 0.9
    return predicted(OnePixel(), images, (torch.arange(240) < 40).long())


def test_few_control_images_that_differ_are_not_certain(one_pixel):
    """Two images serve as control of 200 pairs: one has the whole effect, the other none."""
    screening = replace(screen(one_pixel, PIXEL, 12, generator()), contains=torch.arange(40) < 38)
    pairs = one_pixel.pairs(1, screening.carriers, 200, generator())
    trial = trial_on(pairs, screening, screening, 0.0, generator())
    assert trial.effect.value - trial.control > 0.4
    assert trial.excess.p_above(0.05) > 0.05


def test_what_was_found_before_stays_in_all_responses(one_pixel):
    """With the only pixel that matters kept, nothing responds."""
    screening = screen(one_pixel, PIXEL, 12, generator(), Rule(None, True), PIXEL.region)
    assert screening.responses.abs().max() == 0


def test_few_images_of_other_classes_are_not_counted_twice():
    """In the first pixel of noise, the class has no larger share of bright images than others."""
    small, candidate = 0, replace(PIXEL, swap=FirstPixel())
    for seed in range(200):
        images = random(72, 1, 1, 1, seed=seed)
        predictions = without_model(split_of(images, (torch.arange(len(images)) < 60).long()))
        rule, statistics = Rule(torch.ones(1).double(), True), candidate.statistics(images[:60]).double()
        contains, groups = rule.split(noise(0, 60), statistics)
        members = torch.arange(60)
        screening = Screening(candidate, predictions, members, noise(0, 60), rule, contains, groups, members[:4])
        small += p_more_often(screening, generator()) < 0.05
    assert small <= 22  # 5 % of 200, plus four standard errors


@pytest.mark.parametrize(("tests", "donors"), [(1, 5), (10, 5), (10, 50), (100, 50), (20, 1)])
def test_detectable_effect_solves_its_equation(tests, donors):
    effect = detectable(tests, donors)
    reach = quantile(0.05 / tests, max(1, donors - 1)) + 0.84
    assert effect == pytest.approx(0.05 + reach * math.sqrt(effect * (1 - effect) / donors), abs=1e-6)
    assert 0.05 < effect <= 1


# --- What is chosen, and what is reported


BOX = Box(2, 2, 6, 6)


def screened(candidate, contains, separation=9.0, images=None):
    """A screening of made-up groups. Images of class 1 follow those of class 0."""
    members = torch.arange(len(contains)) + len(contains) * candidate.class_index
    predictions = None if images is None else without_model(split_of(images, torch.zeros(len(images))))
    groups = Groups(contains, separation, 1.0, 0.5)
    return Screening(
        candidate, predictions, members, contains.double(), Rule(None, True), contains, groups, members[:4]
    )


def region(class_index=0, box=BOX, shared=False):
    return SwapCandidate(REGION, class_index, "scan", Transplant(box.region((12, 12))), shared=shared)


def of_whole_image(kind):
    return SwapCandidate(kind, 0, "whole image", {COLOUR: Colour(), BORDER: Border(1)}[kind])


def test_groups_that_are_those_of_something_without_effect_are_not_tested():
    """Images without a frame, which the model ignores, show the colours of their class."""
    framed = torch.arange(40) % 2 == 0
    colour, border = screened(of_whole_image(COLOUR), ~framed, 5.0), screened(of_whole_image(BORDER), framed, 20.0)
    assert has_groups_of_another(colour, [colour, border], [colour])
    assert not has_groups_of_another(colour, [colour, border], [colour, border])  # the border has an effect as well
    assert not has_groups_of_another(colour, [colour, screened(region(), framed, 9.0)], [colour])  # hardly clearer
    others = screened(region(), torch.arange(40) % 4 < 2, 20.0)
    assert not has_groups_of_another(colour, [colour, others], [colour])  # other groups


def test_colours_of_the_whole_image_are_not_something_else_than_a_region():
    """A patch in a corner changes the colours of the image, which have no effect of their own."""
    patched = torch.arange(40) % 4 > 0
    patch = screened(region(), patched, 9.0)
    colour = screened(of_whole_image(COLOUR), ~patched, 80.0)
    assert not has_groups_of_another(patch, [patch, colour], [patch])
    assert has_groups_of_another(patch, [patch, screened(region(), ~patched, 80.0)], [patch])


def test_what_a_whole_class_shares_is_the_object_unless_it_is_very_clear_or_always_the_same():
    half, images = torch.arange(40) < 20, random(40, 1, 12, 12)
    same = images[:1].expand(40, -1, -1, -1)
    assert may_be_the_object(screened(region(shared=True), half, 5.0, images))
    assert not may_be_the_object(screened(region(shared=True), half, 5.0, same))
    assert not may_be_the_object(screened(region(shared=True), half, 8.0, images))
    assert not may_be_the_object(screened(region(), half, 5.0, images))


# Images 0–19 are of class 0, those at even positions have a constant patch. The rest is of class 1, without it.
TWO_CLASSES = random(40, 1, 12, 12)
TWO_CLASSES[0:20:2, :, 2:6, 2:6] = 0.5


def trial(candidate):
    """Every second image of the class "contains" it."""
    screening = screened(candidate, torch.arange(20) % 2 == 0, images=TWO_CLASSES)
    mean = Mean(0.5, 0.01, 10)
    return Trial(
        screening, screening, None, mean, 0.0, mean, 0.5, 0.0, "", 0.0, torch.zeros(0), variety=variety(screening)
    )


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_only_the_presence_stays(order):
    """The images with the patch look alike there. Those that only lack it don't."""
    trials = [trial(region(index)) for index in order]
    assert [each.candidate.class_index for each in without_absences(trials)] == [0]


def test_another_place_another_kind_and_the_same_class_stay():
    colour = SwapCandidate(COLOUR, 1, "whole image", Colour())
    for others in (region(1, Box(8, 8, 12, 12)), colour, region(0, Box(3, 3, 7, 7))):
        trials = [trial(region(0)), trial(others)]
        assert without_absences(trials) == trials


@pytest.mark.parametrize(("same", "left"), [(True, 1), (False, 2)])
def test_patches_that_move_are_one_if_they_look_alike(same, left):
    first, second = random(2, 1, 3, 3, seed=3)
    templates = (first, 0.5 * first + 0.1 if same else second)
    trials = [trial(PatchCandidate(PATCH, index, "maps", template)) for index, template in enumerate(templates)]
    assert len(without_absences(trials)) == left


@pytest.mark.parametrize(
    ("difference", "error", "before", "after", "expected"),
    [
        (-0.6, 0.02, 0.6, 0.0, REMOVED),
        (-0.3, 0.02, 0.6, 0.3, REDUCED),
        (0.01, 0.01, 0.6, 0.61, UNCHANGED),
        (0.045, 0.002, 0.6, 0.645, UNCHANGED),  # certain, but too small to matter
        (0.045, 0.02, 0.6, 0.645, UNCLEAR),  # up to 0.085
        (-0.5, 0.32, 0.6, 0.1, UNCLEAR),
        (-0.5, math.inf, 0.6, 0.1, UNCLEAR),  # a single donor
        (0.3, 0.02, 0.3, 0.6, STRONGER),
        (0.6, 0.02, 0.0, 0.6, NEW),
    ],
)
def test_verdicts(difference, error, before, after, expected):
    groups = 100 if math.isfinite(error) else 1
    assert verdict(Mean(difference, error, groups), Mean(before, 0.01, 100), Mean(after, 0.01, 100)) == expected
