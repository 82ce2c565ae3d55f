"""`agop app` as a person meets it: a real server, a real browser, real files."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file

from agop.app import example
from agop.app.uploads import MOST_SENT_BYTES

pytestmark = pytest.mark.slow
WAIT = 60_000


@contextmanager
def served(folder, *arguments):
    """A running `agop app`, its address and its process; its temporary files go below the folder."""
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "agop", "app", "--port", "0", *arguments]
    options = {"cwd": folder, "text": True, "env": os.environ | {"TMPDIR": str(temporary)}}
    with (
        (folder / "errors").open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, **options) as process,
    ):
        try:
            line = process.stdout.readline()
            found = re.search(r"http://\S+", line)
            assert found, (folder / "errors").read_text()
            yield found.group(), process
        finally:
            if process.poll() is None:
                process.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("served")) as (address, process):
        yield address
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


@pytest.fixture
def visit(browser, server):
    """A function that opens the page; at the end nothing may have gone wrong in it, or to another machine."""
    errors, requests, contexts = [], [], []

    def opened(width=1280, scheme="light", address=server):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT)
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda ask: requests.append(ask.url))
        page.goto(address)
        page.wait_for_selector("#explain")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert errors == []
    assert requests
    assert [url for url in requests if not url.startswith(("http://127.0.0.1:", "data:", "blob:"))] == []


def choose(page, *names):
    """Tick these methods and no others. As with `write`, what is ticked in the first moment may not stay."""
    boxes, stays = page.locator("#methods input[type=checkbox]"), False
    while not stays:
        for box in boxes.all():
            if box.is_checked() != (box.get_attribute("name") in names):
                box.click()
        page.wait_for_timeout(500)
        stays = {box.get_attribute("name") for box in boxes.all() if box.is_checked()} == set(names)


def drop(page, *files):
    """Upload the files in place of those that are there."""
    clear = page.locator("#pictures button[aria-label='Clear']")
    if clear.count():
        clear.click()
    page.wait_for_selector("#pictures input[type=file]", state="attached")
    page.locator("#pictures input[type=file]").set_input_files([str(file) for file in files])


def write(page, field, text):
    """Put a text in a field. Gradio fills a field anew in the first moment it is shown: put it until it stays."""
    entry = page.locator(f"#field-{field} input, #field-{field} textarea")
    stays = False
    while not stays:
        entry.fill(text)
        page.wait_for_timeout(500)
        stays = entry.input_value() == text


def answered(page, cards):
    page.wait_for_function("n => document.querySelectorAll('.agop-card').length === n", arg=cards)


def captions(card):
    return card.locator("figcaption").all_inner_texts()


def test_an_example_is_one_click_away(visit):
    page = visit()
    page.locator("#examples button").first.click()
    answered(page, 1)
    card = page.locator(".agop-card")
    assert "L-1.png is predicted to be L" in card.inner_text()
    assert captions(card) == ["picture", "vanilla", "integrated-gradients", "agop-weighted"]
    assert "a pixel’s share of its map" in card.inner_text()
    assert card.locator("img").evaluate_all("all => all.every(i => i.complete && i.naturalWidth === 8)")


def test_own_pictures_by_two_methods_beside_a_file_that_is_none(visit, tmp_path):
    (tmp_path / "note.png").write_text("this is a note")
    rows = np.random.default_rng(0).integers(0, 255, (90, 120, 3), dtype=np.uint8)
    Image.fromarray(rows).save(tmp_path / "photo.jpg")
    page = visit()
    choose(page, "vanilla", "agop-weighted")
    drop(page, tmp_path / "note.png", tmp_path / "photo.jpg", example.pictures()[0])
    answered(page, 2)
    alert = page.locator("#answers [role=alert]").inner_text()
    assert "note.png: it is not a picture" in alert
    assert str(tmp_path) not in alert
    for card, name in zip(page.locator(".agop-card").all(), ("photo.jpg", "L-1.png"), strict=True):
        assert name in card.inner_text()
        assert captions(card) == ["picture", "vanilla", "agop-weighted"]
        assert card.locator("tr").count() == 2
    choose(page, "smoothgrad")
    page.locator("#explain").click()
    page.wait_for_selector("figcaption:has-text('smoothgrad')")
    assert captions(page.locator(".agop-card").first) == ["picture", "smoothgrad"]


def test_the_download_holds_the_maps(visit, tmp_path):
    page = visit()
    choose(page, "vanilla", "agop-global")
    drop(page, *example.pictures())
    answered(page, 3)
    with page.expect_download() as waiting:
        page.locator("#download").click()
    waiting.value.save_as(tmp_path / "explanations.zip")
    assert waiting.value.suggested_filename == "explanations.zip"
    with zipfile.ZipFile(tmp_path / "explanations.zip") as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / "explanations"
    maps = load_file(folder / "maps.safetensors")
    assert {name: tuple(values.shape) for name, values in maps.items()} == {
        "vanilla": (3, 8, 8), "agop-global": (3, 8, 8),
    }  # fmt: skip
    manifest = json.loads((folder / "manifest.json").read_text())
    assert [entry["file"] for entry in manifest["images"]] == [path.name for path in example.pictures()]
    assert all((folder / entry["picture"]).exists() for entry in manifest["images"])


def test_a_file_name_is_shown_as_it_stands(visit, tmp_path):
    strange = tmp_path / "${document.title='gone'} <b>x<b> {{value}}.png"
    strange.write_bytes(example.pictures()[0].read_bytes())
    page = visit()
    drop(page, strange)
    answered(page, 1)
    assert page.title() != "gone"
    assert page.locator(".agop-card b").count() == 0


def test_a_file_too_large_is_told_and_the_others_are_explained(visit, tmp_path):
    (tmp_path / "large.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(21 * 2**20))
    page = visit()
    drop(page, tmp_path / "large.png", example.pictures()[0])
    answered(page, 1)
    assert "large.png: it has 21.0 MB, the most is 20 MB" in page.locator("#answers [role=alert]").inner_text()


def test_a_file_far_too_large_is_not_even_sent(browser, server, tmp_path):
    with (tmp_path / "huge.png").open("wb") as file:
        file.truncate(MOST_SENT_BYTES + 1)
    page = browser.new_page()
    page.goto(server)
    drop(page, tmp_path / "huge.png")
    page.get_by_text("exceed the maximum allowed size of 100.0 Mb").wait_for(timeout=WAIT)
    page.close()


def test_a_model_is_loaded_and_without_an_agop_file_its_methods_are_not_offered(visit):
    page = visit()
    page.locator("#model button").first.click()
    write(page, "prior", "")
    page.locator("#load").click()
    page.wait_for_selector("#about:has-text('no AGOP file')")
    page.wait_for_selector("#methods:has-text('need an AGOP file of this model')")
    names = [box.get_attribute("name") for box in page.locator("#methods input[type=checkbox]").all()]
    assert "vanilla" in names
    assert not {"agop-weighted", "agop-global"} & set(names)
    write(page, "weights", "weights.pth")
    page.locator("#load").click()
    page.wait_for_selector("#about [role=alert]:has-text('not a .safetensors file')")
    write(page, "weights", "")
    write(page, "prior", str(example.PRIOR))
    page.locator("#load").click()
    page.wait_for_selector("#about:has-text('261,727 samples')")
    page.wait_for_selector("#methods label:has-text('agop-weighted')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_telephone_nothing_is_wider_than_the_screen(visit, scheme):
    page = visit(390, scheme)
    page.locator("#examples button").nth(1).click()
    answered(page, 1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    # At once: the page still moves as the button to download appears.
    tops = page.locator(".agop-card figure").evaluate_all("all => all.map(one => one.getBoundingClientRect().top)")
    assert tops[0] == pytest.approx(tops[1], abs=1)


def test_the_footer_and_the_interface_for_programs_are_gone(visit, server):
    page = visit()
    assert not page.locator("footer").is_visible()
    for path in ("/docs", "/gradio_api/info", "/monitoring", "/gradio_api/openapi.json"):
        assert status(f"{server}{path}") == 404


# Without a browser


def status(address, data=None, **headers):
    """The status of an answer."""
    asked = urllib.request.Request(address, data, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def configuration(address):
    with urllib.request.urlopen(f"{address}/config", timeout=30) as answer:
        return json.load(answer)


def loads(config):
    """The events of the page that take the text of the model's field: what could load one."""
    texts = {part["id"] for part in config["components"] if part["type"] == "textbox"}
    return [event for event in config["dependencies"] if texts & set(event["inputs"])]


def test_another_sites_page_cannot_load_a_model(tmp_path):
    """The same question is answered when it comes from this page, and then runs the model's code."""
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\nfrom agop.app.example import network\nPath('imported').touch()\n"
    )
    fields = ["mine:network", "", "", "", "8", "0.5", "0.5", True, "", ""]
    with served(tmp_path) as (address, _):
        [load] = loads(configuration(address))
        body = json.dumps({"data": fields, "fn_index": load["id"], "session_hash": "abc"}).encode()
        join = f"{address}/gradio_api/queue/join"
        assert status(join, body, Origin="http://evil.example") == 403
        assert status(join, body, Origin="null") == 403
        assert status(join, body, Host="evil.example") == 403
        assert status(f"{address}/", Host="evil.example") == 403
        assert not (tmp_path / "imported").exists()
        assert status(join, body, Origin=address) == 200
        with urllib.request.urlopen(f"{address}/gradio_api/queue/data?session_hash=abc", timeout=60) as stream:
            for line in stream:
                if b"process_completed" in line:
                    break
        assert (tmp_path / "imported").exists()


def test_for_others_the_model_is_that_of_the_command_line(tmp_path):
    with served(tmp_path, "--host", "0.0.0.0") as (address, _):
        assert "everybody who can reach 0.0.0.0 can use this page" in (tmp_path / "errors").read_text()
        local = address.replace("0.0.0.0", "127.0.0.1")
        config = configuration(local)
        assert loads(config) == []
        assert not [part for part in config["components"] if part["type"] == "textbox"]
        assert status(f"{local}/gradio_api/queue/join", b"{}", Origin="http://evil.example") == 403
        assert status(f"{local}/gradio_api/file=/etc/hostname") == 403


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 0)])
def test_a_signal_ends_it_cleanly_and_nothing_is_left(browser, tmp_path, number, code):
    """With a page open that has asked for something, and files uploaded."""
    with served(tmp_path) as (address, process):
        page = browser.new_page()
        page.goto(address)
        page.locator("#examples button").first.click(timeout=WAIT)
        page.wait_for_selector(".agop-card", timeout=WAIT)
        [folder] = (tmp_path / "temporary").glob("agop-app-*")
        assert any(folder.iterdir())
        process.send_signal(number)
        assert process.wait(30) == code
        page.close()
    assert (tmp_path / "errors").read_text() == ""
    assert not list((tmp_path / "temporary").glob("agop-app-*"))


SLOW = """
import time, torch

class Slow(torch.nn.Linear):
    def __init__(self):
        super().__init__(64, 2)

    def forward(self, x):
        if x.any():
            time.sleep(300)
        return super().forward(x.flatten(1))
"""


def test_a_model_at_work_does_not_hold_it_up(browser, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    with served(tmp_path, "slow:Slow", "--size", "8", "--gray") as (address, process):
        page = browser.new_page()
        page.goto(address)
        drop(page, example.pictures()[0])
        page.get_by_text("picture 1 of 1").first.wait_for(timeout=WAIT)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        page.close()
    assert (tmp_path / "errors").read_text() == ""
    assert not list((tmp_path / "temporary").glob("agop-app-*"))


def test_a_port_that_is_taken_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "agop", "app", "--port", str(port)], capture_output=True, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(
        rf"error: 127\.0\.0\.1 port {port} cannot be used \(Address already in use\): "
        rf"give another one, for example --port \d+\n", done.stderr,
    )  # fmt: skip


def test_what_cannot_be_loaded_is_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "agop", "app", "nowhere:net", "--port", "0"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "error: no module named nowhere: run this from its folder\n"
    assert Path(example.PRIOR).exists()
