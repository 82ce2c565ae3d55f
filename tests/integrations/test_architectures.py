"""Transformers' architectures with random weights: any output has maps, and the model is left as it was."""

import pytest
import torch

import agop
from agop import outputs
from tests.integrations.hugging_face import cheap_garbage_collection  # noqa: F401  # a fixture
from tests.state import assert_same

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore:the map of layer", "ignore:the prior has gradients of output")
IMAGES = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0)).double()


def segformer():
    config = transformers.SegformerConfig(
        depths=[1, 1, 1, 1], hidden_sizes=[8, 8, 16, 16], num_attention_heads=[1, 1, 2, 2], decoder_hidden_size=16,
        num_labels=4,
    )  # fmt: skip
    return transformers.SegformerForSemanticSegmentation(config)


def detr():
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", out_features=["stage2"]
    )
    config = transformers.DetrConfig(
        backbone_config=backbone, use_timm_backbone=False, backbone=None, use_pretrained_backbone=False, d_model=16,
        num_queries=6, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=16, decoder_ffn_dim=16, num_labels=3,
    )  # fmt: skip
    return transformers.DetrForObjectDetection(config)


SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def clip():
    text = SMALL | {"vocab_size": 30, "max_position_embeddings": 8, "bos_token_id": 0, "eos_token_id": 1}
    vision = SMALL | {"image_size": 32, "patch_size": 8}
    return transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=12))


def vit():
    config = transformers.ViTConfig(**SMALL, image_size=32, patch_size=8, num_labels=2, problem_type="regression")
    return transformers.ViTForImageClassification(config)


def image_features(model, images):
    return model.get_image_features(pixel_values=images)


TOKENS = torch.tensor([[0, 5, 7, 1]])
BOXES = torch.tensor([[0.1, 0.1, 0.6, 0.6]]).repeat(3, 1)
REGIONS = torch.zeros(3, 32, 32).index_fill(2, torch.arange(16), 1)
# Architecture → model, and outputs with the function that runs the model.
CASES = {
    "SegFormer": (segformer, [outputs.segment(2, REGIONS), outputs.segment(1, REGIONS[0])], None),
    "DETR": (detr, [outputs.detection(), outputs.detection(1), outputs.detection(box=BOXES)], None),
    "CLIP": (clip, [outputs.similarity(torch.ones(12)), outputs.similarity(torch.eye(12)[:3])], image_features),
    "CLIP, image and text": (
        clip, [outputs.value(0)], lambda model, images: model(input_ids=TOKENS, pixel_values=images).logits_per_image
    ),
    "ViT regression": (vit, [outputs.value(0), outputs.value(1)], None),
}  # fmt: skip
METHODS = [
    "vanilla", "input-x-gradient", "integrated-gradients", "expected-gradients", "gradcam", "agop", "agop-weighted",
    "agop-ixg", "captum:Occlusion",
]  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_maps_of_any_output_of_an_architecture_and_its_model_is_unchanged(name):
    build, explained, forward = CASES[name]
    torch.manual_seed(0)
    model = build().double().train()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    for output in explained:
        options = {"output": output, "forward": forward}
        gradients = agop.input_gradients(model, IMAGES, **options)
        whole, shape = gradients.values.flatten(1), IMAGES.shape
        assert gradients.values.shape == shape
        assert (whole.norm(dim=1) > 0).all()
        for place in range(3):  # an image's numbers don't depend on the others
            own = options | {"output": output.rows(slice(place, place + 1))}
            alone = agop.input_gradients(model, IMAGES[place : place + 1], **own)
            torch.testing.assert_close(alone.logits[0], gradients.logits[place], rtol=1e-6, atol=1e-9)
            torch.testing.assert_close(alone.values[0], gradients.values[place], rtol=1e-5, atol=1e-9)
        # A small step along the gradient changes the number by the gradient's norm.
        norms, step = whole.norm(dim=1), 1e-4
        move = step * gradients.values / norms[:, None, None, None]
        ends = [agop.input_gradients(model, IMAGES + sign * move, **options).logits[:, 0] for sign in (1, -1)]
        torch.testing.assert_close((ends[0] - ends[1]) / (2 * step), norms, rtol=1e-2, atol=1e-9)
        shared = output if not output.each else outputs.Output(output.label, output.function, dict(output.options) | {
            key: values[0] for key, values in output.each.items()})  # fmt: skip
        prior = agop.fit(model, [IMAGES], progress=False, rank=2, tune=False, output=shared, forward=forward)
        for method in METHODS:
            maps = agop.explain(model, IMAGES, method, prior, references=IMAGES.flip(0), **options)
            assert maps.shape == (3, 32, 32)
            assert maps.isfinite().all()
    assert model.training
    assert_same(before, dict(model.state_dict()))


@pytest.mark.parametrize("name", ["SegFormer", "DETR", "CLIP"])
def test_without_an_output_the_error_has_the_keys_or_the_shape_and_the_line_to_write(name):
    torch.manual_seed(0)
    model, forward = CASES[name][0](), CASES[name][2]
    messages = {"SegFormer": r"\(3, 4, 8, 8\).*pass output=, for example output=agop.outputs.segment",
                "DETR": r"\(3, 6, 4\).*output=agop.outputs.detection",
                "CLIP": r"keys \['last_hidden_state', 'pooler_output'\].*output=lambda returned: "}  # fmt: skip
    with pytest.raises(agop.AGOPError, match=messages[name]):
        agop.explain(model, IMAGES, "vanilla", forward=forward)
