"""The page that `agop explain` writes, in a browser."""

import torch
from safetensors.torch import save_file

from agop.bench import CNN8by8
from tests.command import run_checked
from tests.image_files import save_random

NAMES = ["cat", "<img src=x onerror=alert(1)>"]


def texts(page, selector):
    return page.locator(f"tbody {selector}").all_inner_texts()


def test_wrong_ones_are_first_and_columns_sort(page, tmp_path):
    torch.manual_seed(0)
    save_file(CNN8by8().state_dict(), tmp_path / "w.safetensors")
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    save_random(tmp_path / "photos", *(f"{name}/{index}.png" for name in NAMES for index in (2, 10, 30)))
    run_checked(
        "explain", "agop.bench:CNN8by8", "photos", "--weights", "w.safetensors", "--size", "8", "--gray",
        "--names", "names.txt", "--method", "vanilla", "--method", "gradcam:layer=conv1", folder=tmp_path,
    )  # fmt: skip
    page.goto(f"file://{tmp_path}/explanations/index.html")
    results = texts(page, ".result")
    assert results == sorted(results, key=lambda text: "wrong" not in text)
    assert {"✗ wrong", "✓ correct"} == set(results)
    for _ in range(2):
        page.get_by_role("button", name="result").click()
    assert texts(page, ".result") == results
    assert page.locator("th.result").get_attribute("aria-sort") == "ascending"
    page.get_by_role("button", name="probability").click()
    values = [float(text.split()[0]) for text in texts(page, ".number")]
    assert values == sorted(values, reverse=True)
    page.get_by_role("button", name="file").click()
    files = [f"photos/{name}/{index}.png" for name in NAMES[::-1] for index in (2, 10, 30)]
    assert texts(page, ".file") == files
    assert page.locator("table img").evaluate_all("images => images.every(image => image.naturalWidth === 8)")
    assert page.locator("table img").count() == 2 * len(files)
    large = page.locator("#large")
    assert not large.is_visible()
    page.locator("tbody a").nth(2).hover()
    assert large.get_attribute("src").endswith(page.locator("tbody a").nth(2).get_attribute("href"))
    assert large.bounding_box()["width"] >= 400
    page.wait_for_function("document.getElementById('large').naturalWidth >= 400")  # image and maps side by side
    page.mouse.move(1000, 5)
    assert not large.is_visible()
    with page.expect_navigation():
        page.locator("tbody a").first.click()
    assert page.url.endswith(".png")
