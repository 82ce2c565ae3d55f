"""Outputs without classes: of segmentation, detection, regression and similarity, and a user's own functions."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

import agop
from agop import outputs
from agop.errors import AGOPWarning, GradientError, InputError, ModelError
from tests import zoo

pytestmark = pytest.mark.filterwarnings("ignore:the map of layer")
METHODS = agop.methods.names()
MASKS = torch.rand(5, 24, 24, generator=torch.Generator().manual_seed(4)) > 0.6
EMBEDDINGS = torch.randn(5, 4, generator=torch.Generator().manual_seed(5))
CORNERS = torch.tensor([[0, 0, 5, 5], [2, 2, 9, 8], [1, 6, 8, 11], [4, 0, 11, 6], [0, 0, 12, 12]]).float()


class Body(nn.Module):
    """Four maps of 12×12, and what `end` makes of them."""

    def __init__(self, end, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.body = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.Tanh(), nn.Conv2d(6, 4, 3, padding=1)
        )
        self.end = end

    def forward(self, images):
        return self.end(self.body(images))


def boxes_and_scores(maps):
    """One prediction per position: a box (N,144,4) as centre and size around it, and scores of three classes."""
    rows, columns = torch.meshgrid(torch.arange(12), torch.arange(12), indexing="ij")
    centres = torch.stack([columns, rows], dim=-1).reshape(1, -1, 2).to(maps) + 0.5
    numbers = maps.flatten(2).mT
    return torch.cat([centres.expand(len(maps), -1, -1), 2 + 3 * numbers[..., :2].sigmoid()], -1), numbers[..., 1:]


def detr(maps):
    boxes, numbers = boxes_and_scores(maps)
    return SimpleNamespace(logits=torch.cat([numbers, torch.zeros_like(numbers[..., :1])], -1), pred_boxes=boxes)


def yolo(maps):
    found = detr(maps)
    return torch.cat([found.pred_boxes, found.logits.softmax(-1)[..., :-1]], -1).mT, "features"


def torchvision(maps):
    """A list of dicts: each box with its best class."""
    found = []
    for numbers in yolo(maps)[0].mT:
        scores, labels = numbers[:, 4:].max(dim=1)
        half = numbers[:, 2:4] / 2
        found.append({"boxes": torch.cat([numbers[:, :2] - half, numbers[:, :2] + half], 1), "scores": scores,
                      "labels": labels})  # fmt: skip
    return found


def dense():
    return Body(lambda maps: {"out": maps, "aux": maps.mean()}).eval()


def detector(kind=yolo):
    return Body(kind).eval()


def vectors():
    return Body(lambda maps: SimpleNamespace(image_embeds=maps[:, :, 3:9].mean((2, 3)))).eval()


# Name → model, output for all images, and a function from (returned for one image, its place) to the same number.
CASES = {
    "segment": (dense(), outputs.segment(1), lambda r, i: r["out"][0, 1][r["out"][0].argmax(0) == 1].mean()),
    "segment, region": (
        dense(), outputs.segment(2, MASKS[:, ::2, ::2]), lambda r, i: r["out"][0, 2][MASKS[i, ::2, ::2]].mean()
    ),
    "detection, box": (
        detector(), outputs.detection(box=CORNERS),
        lambda r, i: r[0][0, 4:, slow_overlaps(r[0][0, :4].T, CORNERS[i]).argmax()].max(),
    ),
    "similarity": (
        vectors(), outputs.similarity(EMBEDDINGS),
        lambda r, i: r.image_embeds[0] @ EMBEDDINGS[i] / (r.image_embeds[0].norm() * EMBEDDINGS[i].norm()),
    ),
    "value": (Body(lambda maps: maps.mean((2, 3))).eval(), outputs.value(2), lambda r, i: r[0, 2]),
    "own": (dense(), lambda returned: returned["out"].square().mean((1, 2, 3)), lambda r, i: r["out"].square().mean()),
}  # fmt: skip


def slow_overlaps(boxes, corners):
    """Intersection over union, counted on a fine grid."""
    x = torch.arange(-4, 18, 0.02)
    overlaps = []
    for cx, cy, w, h in boxes.tolist():
        own, given = ([(x >= low) & (x < high) for low, high in sides] for sides in (
            ((cx - w / 2, cx + w / 2), (cy - h / 2, cy + h / 2)), (corners[0::2].tolist(), corners[1::2].tolist())
        ))  # fmt: skip
        both = (own[0] & given[0]).sum() * (own[1] & given[1]).sum()
        overlaps.append(both / (own[0].sum() * own[1].sum() + given[0].sum() * given[1].sum() - both))
    return torch.stack(overlaps)


def slow_gradients(model, images, number):
    gradients = []
    for place, image in enumerate(images):
        leaf = image[None].clone().requires_grad_()
        gradients.append(torch.autograd.grad(number(model(leaf), place), leaf)[0])
    return torch.cat(gradients)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_number_image_by_image(name):
    model, output, number = CASES[name]
    images = zoo.images()
    gradients = agop.input_gradients(model, images, output=output)
    torch.testing.assert_close(gradients.values, slow_gradients(model, images, number), rtol=1e-4, atol=1e-7)
    expected = torch.stack([number(model(image[None]), place) for place, image in enumerate(images)])
    torch.testing.assert_close(gradients.logits[:, 0], expected.detach(), rtol=1e-4, atol=1e-6)


def detr_tuple(maps):
    found = detr(maps)
    return found.logits, found.pred_boxes, "features"


@pytest.mark.parametrize("kind", [detr, detr_tuple, torchvision], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("options", [{}, {"class_index": 2}, {"box": CORNERS}, {"box": CORNERS[1], "class_index": 1}])
def test_all_kinds_of_detectors_give_the_same_scores(kind, options):
    if kind is torchvision and len(options) == 2:
        pytest.skip("there, a box has one class")
    images, output = zoo.images(), outputs.detection(**options)
    both = [agop.input_gradients(detector(each), images, output=output) for each in (kind, yolo)]
    torch.testing.assert_close(both[0].logits, both[1].logits)
    torch.testing.assert_close(both[0].values, both[1].values, rtol=1e-4, atol=1e-7)
    assert both[0].values.abs().sum() > 0


def test_a_detector_without_the_prediction_has_a_score_of_0_without_a_gradient():
    def half(maps):
        return [{name: values[:0] if place % 2 else values for name, values in found.items()}
                for place, found in enumerate(torchvision(maps))]  # fmt: skip

    model, images = detector(half), zoo.images(4)
    gradients = agop.input_gradients(model, images, output=outputs.detection())
    assert gradients.logits[1::2].eq(0).all()
    assert gradients.values.flatten(1).norm(dim=1).gt(0).tolist() == [True, False] * 2
    far = outputs.detection(box=[90, 90, 95, 95])
    assert not agop.input_gradients(detector(), images, output=far).values.any()


@pytest.mark.filterwarnings("ignore:the prior has gradients of output='similarity")
@pytest.mark.parametrize("name", ["segment, region", "detection, box", "similarity"])
@pytest.mark.parametrize("method", METHODS)
def test_each_image_has_its_own_region_box_or_embedding_in_every_method(method, name):
    model, output, _ = CASES[name]
    images, options = zoo.images(), {"prior": prior_of(name), "references": zoo.images(4, seed=2)}
    together = agop.explain(model, images, method, output=output, batch_size=2, **options)
    for place in range(5 if method != "random" else 0):
        own = output.rows(slice(place, place + 1))
        alone = agop.explain(model, images[place : place + 1], method, output=own, **options)
        torch.testing.assert_close(alone[0], together[place], rtol=1e-3, atol=1e-5 * float(together[place].max()))


PRIORS = {}


def prior_of(name):
    """A prior with all optional parts, for an output that is the same for all images."""
    if name not in PRIORS:
        model, output, _ = CASES[name]
        shared = {"segment, region": outputs.segment(2), "detection, box": outputs.detection(),
                  "similarity": outputs.similarity(EMBEDDINGS[0])}.get(name, output)  # fmt: skip
        PRIORS[name] = agop.fit(model, [zoo.images(7, seed=3)], progress=False, rank=3, output=shared)
    return PRIORS[name]


@pytest.mark.parametrize("name", ["segment", "value", "own"])
def test_fit_and_hook_collect_the_gradients_of_the_number_and_ignore_labels(name, tmp_path):
    model, output, number = CASES[name]
    images = zoo.images(6)
    expected = slow_gradients(model, images, number).double().square().mean(0)
    masks = torch.zeros(6, 12, 12)  # a loader of a segmentation network: not labels
    prior = agop.fit(model, [(images[:4], masks[:4]), (images[4:], masks[4:])], progress=False, output=output)
    hook = agop.AGOPTrainingHook(model, output=output)
    hook.step(images, masks)
    for each in (prior, hook.finalize()):
        torch.testing.assert_close(each.diagonal, expected, rtol=1e-3, atol=1e-10)
        assert each.count == 6
        assert each.provenance.classes is None
        assert each.provenance.options["only_correct"] is False
    prior.save(tmp_path / "prior.safetensors")
    names = {"segment": "segment(class_index=1)", "value": "value(index=2)", "own": "<lambda>"}
    assert agop.AGOP.load(tmp_path / "prior.safetensors").provenance.output == names[name]
    other = outputs.Output("other", lambda returned: number(returned, 0)[None])
    with pytest.warns(AGOPWarning, match="output='other': pass the same output to fit and explain"):
        agop.explain(model, images, "agop-weighted", prior, output=other, batch_size=1)


def test_names_tell_tensors_apart_and_leave_out_those_of_single_images():
    names = {outputs.similarity(embedding).name for embedding in (*EMBEDDINGS, *EMBEDDINGS.clone())}
    assert len(names) == 5
    assert outputs.similarity(EMBEDDINGS).name == "similarity"
    assert outputs.segment(3, MASKS).name == outputs.segment(3).name == "segment(class_index=3)"


@pytest.mark.parametrize("name", ["segment, region", "own"])
def test_deletion_insertion_and_srg_follow_the_number(name):
    model, output, number = CASES[name]
    images, maps = zoo.images(), torch.rand(5, 12, 12, generator=torch.Generator().manual_seed(6))
    areas = {}
    for metric, inserting in (("deletion", False), ("insertion", True)):
        expected = []
        for place, (image, each) in enumerate(zip(images, maps, strict=True)):
            order, whole = each.flatten().argsort(descending=True), number(model(image[None]), place)
            values = []
            for cut in range(0, 145, 18):
                changed = torch.zeros(144, dtype=torch.bool).index_fill(0, order[:cut], True).reshape(12, 12)
                mixed = torch.where(changed == inserting, image, 0.0)
                values.append(float((number(model(mixed[None]), place) / whole.abs()).detach()))
            expected.append(torch.trapezoid(torch.tensor(values).double(), dx=1 / 8))
        areas[metric] = agop.metrics.get(metric)(model, images, maps, steps=8, output=output, batch_size=2)
        torch.testing.assert_close(areas[metric], torch.stack(expected), rtol=1e-3, atol=1e-4)
    gains = agop.metrics.srg(model, images, maps, steps=8, fill=0.0, output=output)
    torch.testing.assert_close(gains, areas["insertion"] - areas["deletion"], rtol=1e-4, atol=1e-5)


def test_a_score_relative_to_0_is_undefined():
    zero = outputs.Output("zero", lambda returned: returned["out"].mean((1, 2, 3)) * 0)
    assert agop.metrics.deletion(dense(), zoo.images(), torch.rand(5, 12, 12), output=zero).isnan().all()


def test_a_score_of_a_detector_is_followed_as_it_is():
    model, images = detector(), zoo.images()
    maps = torch.rand(5, 12, 12)
    scores = agop.metrics.deletion(model, images, maps, steps=1, output=outputs.detection(2))
    ends = [agop.input_gradients(model, x, output=outputs.detection(2)).logits[:, 0] for x in (images, 0 * images)]
    torch.testing.assert_close(scores, torch.stack(ends).mean(0).double())


def test_evaluate_sanity_and_select_take_an_output():
    model, output, _ = CASES["segment, region"]
    images, masks = zoo.images(), MASKS[:, ::2, ::2]
    table = agop.evaluate(model, images, masks, ["vanilla"], metrics=["energy", "deletion"], output=output, steps=4)
    maps = agop.explain(model, images, "vanilla", output=output)
    assert torch.equal(table.scores["vanilla"]["energy"], agop.metrics.energy(maps, masks))
    deletion = agop.metrics.deletion(model, images, maps, steps=4, output=output)
    torch.testing.assert_close(table.scores["vanilla"]["deletion"], deletion)
    assert "Gradients are those of segment(class_index=2)" in repr(table)
    assert not agop.sanity(model, images, "vanilla", output=output).model_independent
    many, shared = zoo.images(12), outputs.segment(2)
    selection = agop.select(model, many, methods=["vanilla"], output=shared, progress=False)
    assert [row["method"] for row in selection.table] == ["vanilla", "random"]


def test_evaluate_keeps_and_resumes_by_output(tmp_path):
    model, images = dense(), zoo.images()
    options = {"methods": ["vanilla"], "metrics": "energy", "out": tmp_path / "run"}
    both = [agop.evaluate(model, images, MASKS[:, ::2, ::2], output=outputs.segment(k), **options) for k in (0, 1)]
    assert not torch.equal(*(each.scores["vanilla"]["energy"] for each in both))


class TwoStreams(nn.Module):
    """Logits from an image and a vector of numbers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.image, self.numbers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh()), nn.Linear(2, 4)

    def forward(self, images, numbers):
        return (self.image(images).mean((2, 3)) * self.numbers(numbers)).cumsum(1)


@pytest.mark.parametrize("method", ["vanilla", "smoothgrad", "gradcam", "agop", "agop-patch", "captum:DeepLift"])
@pytest.mark.parametrize("output", ["logit", "log_odds", "probability", outputs.value(1)], ids=str)
def test_forward_binds_further_inputs(method, output):
    model, numbers = TwoStreams(), torch.tensor([[0.5, -1.0]])

    class Bound(nn.Module):
        def __init__(self):
            super().__init__()
            self.image, self.numbers = model.image, model.numbers

        def forward(self, images):
            return TwoStreams.forward(self, images, numbers)

    images, options = zoo.images(), {"output": output, "only_correct": False, "progress": False, "tune": False}
    forward = lambda net, x: net(x, numbers)  # noqa: E731
    maps = []
    for network, more in ((model, {"forward": forward}), (Bound(), {})):
        prior = agop.fit(network, [images], **options, **more)
        maps.append(agop.explain(network, images, method, prior, output=output, **more))
    torch.testing.assert_close(*maps)
    assert float(maps[0].max()) > 0
    assert set(model._forward_hooks) == set()


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (lambda r: r["out"].mean((2, 3)), r"output <lambda> has shape \(5, 4\) for 5 images: return one number per"),
        (lambda r: r["out"].mean(), r"output <lambda> has shape \(\) for 5 images"),
        (lambda r: 3.0, "output <lambda> is a float: return a tensor"),
        (
            lambda r: r["out"].detach().mean((1, 2, 3)),
            "<lambda> of the model does not depend on its input through diff",
        ),
        (lambda r: r["out"].argmax(1).float().mean((1, 2)), "<lambda> of the model does not depend .* look for detach"),
        (outputs.segment(4), r"segment\(class_index=4\) of logits \(5, 4, 12, 12\)"),
        (outputs.value(), "no tensor for value in the model's output, a dict with keys .'out', 'aux'."),
        (outputs.detection(), "no detections in the model's output, a dict with keys"),
        ("logit", r"no logits .* keys \['out', 'aux'\].*output=lambda returned: returned\['out'\]\.flatten"),
    ],
)
def test_wrong_numbers_raise_and_name_the_output(output, message):
    for call in (agop.explain, agop.input_gradients):
        options = {"method": "vanilla"} if call is agop.explain else {}
        with pytest.raises(ModelError, match=message):
            call(dense(), zoo.images(), output=output, **options)


def test_an_output_that_ignores_the_images_or_is_nan_raises():
    model, images = dense(), zoo.images()
    weights = outputs.Output("weights", lambda r: model.body[0].weight.mean().expand(len(r["out"])))
    with pytest.raises(ModelError, match="the output weights of the model does not depend on its input"):
        agop.explain(model, images, "vanilla", output=weights)
    root = outputs.Output("root", lambda r: (r["out"].mean((1, 2, 3)) - 9).sqrt())
    with pytest.raises(GradientError, match="NaN or infinite gradients of root for sample 0, 1"):
        agop.explain(model, images, "vanilla", output=root)
    with pytest.raises(GradientError, match="the gradient of root for sample 0 of this batch is NaN"):
        agop.fit(model, [images], progress=False, output=root)


def test_what_belongs_to_classes_raises_for_other_outputs():
    model, images, output = dense(), zoo.images(), outputs.segment(1)
    calls = [
        (
            lambda: agop.explain(model, images, "vanilla", target=1, output=output),
            "target= is for outputs with classes",
        ),
        (lambda: agop.fit(model, [images], only_correct=True, output=output), "only_correct=True is for outputs with"),
        (lambda: agop.AGOPTrainingHook(model, per_class=True, output=output), "per_class=True is for outputs with"),
        (lambda: agop.fit(model, [images], output=outputs.segment(1, MASKS)), "segment has one region per image"),
        (lambda: agop.explain(model, images[:2], "vanilla", output=outputs.segment(1, MASKS)), "region for 5 images"),
        (
            lambda: agop.evaluate(model, images, MASKS[:, :12, :12], labels=[0] * 5, output=output),
            "labels= is for outputs with",
        ),
        (lambda: agop.select(model, zoo.images(8), [0] * 8, output=output), "labels= is for outputs with classes"),
        (lambda: agop.grid_pointing_game(model, images, [0] * 5, output=output), "has none: give logit or log_odds"),
        (
            lambda: agop.explain(model, images, "vanilla", output=outputs.value),
            "output is value: give a name, a function",
        ),
        (lambda: agop.explain(model, images, "vanilla", output=3), "output is 3: give a name"),
    ]
    for call, message in calls:
        with pytest.raises(InputError, match=message):
            call()


def test_a_region_may_be_larger_than_the_logits():
    model, images = CASES["segment, region"][0], zoo.images()
    large = functional.interpolate(MASKS[:, None, ::2, ::2].float(), scale_factor=2)[:, 0]
    both = [agop.input_gradients(model, images, output=outputs.segment(2, r)) for r in (large, MASKS[:, ::2, ::2])]
    torch.testing.assert_close(both[0].values, both[1].values)
