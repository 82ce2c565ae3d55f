"""`agop app` with a real server, a real browser and real files."""

import json
import signal
import urllib.request
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

import agop
from tests.app_server import explain, explain_event, serving, status, upload
from tests.command import wait_until

pytestmark = pytest.mark.slow
WAIT = 60_000  # milliseconds
EXAMPLE = Path(agop.__file__).parent / "app" / "example"
IMAGES = sorted(EXAMPLE.glob("*.png"))
WEIGHTS = EXAMPLE / "network.safetensors"
MOST_BYTES = 100 * 2**20


def end(process, number, folder):
    """End the server with a signal: exit code 0, no file left."""
    process.send_signal(number)
    assert process.wait(30) == 0
    assert not list((folder / "temporary").glob("agop-app-*"))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    with serving(folder) as (address, process):
        yield address
        end(process, signal.SIGINT, folder)


@pytest.fixture
def visit(browser, server):
    """A function that opens the page. At the end: no error on the console, no request to another machine."""
    errors, requests, contexts = [], [], []

    def open_page(width=1280, scheme="light", address=server):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT)
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        page.wait_for_selector("#explain")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []
    assert requests
    assert [url for url in requests if not url.startswith(("http://127.0.0.1:", "data:", "blob:"))] == []


def tick(page, *names):
    """Tick these methods and no others."""
    for box in page.locator("#methods input[type=checkbox]").all():
        box.set_checked(box.get_attribute("name") in names)


def drop(page, *files):
    """Upload the files instead of those uploaded before."""
    clear = page.locator("#images button[aria-label='Clear']")
    if clear.count():
        clear.click()
    page.wait_for_selector("#images input[type=file]", state="attached")
    page.locator("#images input[type=file]").set_input_files([str(file) for file in files])


def wait_for_cards(page, count):
    page.wait_for_function("n => document.querySelectorAll('.agop-card').length === n", arg=count)


def captions(card):
    return card.locator("figcaption").all_inner_texts()


def test_uploads_are_explained_and_downloaded_and_bad_files_skipped(visit, tmp_path):
    photo = "${document.title='gone'} <b>x<b> {{value}}.jpg"  # escaped on the page
    (tmp_path / "note.png").write_text("this is a note")
    (tmp_path / "large.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(21 * 2**20))
    pixels = np.random.default_rng(0).integers(0, 255, (90, 120, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / photo)
    page = visit()
    tick(page, "vanilla", "agop-weighted")
    drop(page, tmp_path / "note.png", tmp_path / photo, tmp_path / "large.png", IMAGES[0])
    wait_for_cards(page, 2)
    alert = page.locator("#answers [role=alert]").inner_text()
    assert "Skipped" in alert
    assert "note.png: can't be read as an image" in alert
    assert "large.png: has 21.0 MB, the limit is 20 MB" in alert
    assert str(tmp_path) not in alert
    assert page.title() != "gone"
    assert page.locator(".agop-card b").count() == 0
    for card, name in zip(page.locator(".agop-card").all(), ("value", "L-1.png"), strict=True):
        assert name in card.inner_text()
        assert captions(card) == ["image", "vanilla", "agop-weighted"]
        assert card.locator("tr").count() == 2
    with page.expect_download() as download:
        page.locator("#download").click()
    assert download.value.suggested_filename == "explanations.zip"
    with zipfile.ZipFile(download.value.path()) as archive:
        names = {name.removeprefix("explanations/") for name in archive.namelist()}
        manifest = json.loads(archive.read("explanations/manifest.json"))
    for entry, name in zip(manifest["images"], ("value", "L-1.png"), strict=True):
        assert name in entry["file"]
    assert {"maps.safetensors", *(entry["picture"] for entry in manifest["images"])} <= names
    tick(page, "smoothgrad")
    page.locator("#explain").click()
    page.wait_for_selector("figcaption:has-text('smoothgrad')")
    assert captions(page.locator(".agop-card").first) == ["image", "smoothgrad"]


def test_huge_file_is_not_sent(browser, server, tmp_path):
    with (tmp_path / "huge.png").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    page = browser.new_page()
    page.goto(server)
    drop(page, tmp_path / "huge.png")
    page.get_by_text("exceed the maximum allowed size of 100.0 Mb").wait_for(timeout=WAIT)
    page.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "light"), (390, "dark")])
def test_clicking_an_example_explains_it_without_horizontal_scrolling(visit, width, scheme):
    page = visit(width, scheme)
    page.locator("#examples button").first.click()
    wait_for_cards(page, 1)
    card = page.locator(".agop-card")
    assert "L-1.png is predicted to be L" in card.inner_text()
    assert captions(card) == ["image", "vanilla", "integrated-gradients", "agop"]
    assert "relative to its map’s top value" in card.inner_text()
    assert card.locator("img").evaluate_all("all => all.every(i => i.complete && i.naturalWidth === 8)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # In one call: the page still moves as the download button appears.
    tops = card.locator("figure").evaluate_all("all => all.map(one => one.getBoundingClientRect().top)")
    assert tops[0] == pytest.approx(tops[1], abs=1)
    assert not page.locator("footer").is_visible()


def test_model_of_the_command_line_without_a_prior(visit, tmp_path):
    (tmp_path / "names.txt").write_text("tee\nell\n")
    arguments = ("agop.bench:CNN8by8", "--weights", WEIGHTS, "--size", "8", "--mean", "0.5", "--std", "0.5",
                 "--gray", "--names", "names.txt", "--scale", "common", "--percentile", "30")  # fmt: skip
    with serving(tmp_path, *arguments) as (address, _):
        page = visit(address=address)
        assert "agop.bench:CNN8by8, 2 classes, 8×8 gray; no AGOP file" in page.locator("#about").inner_text()
        assert page.locator("#examples").count() == 0
        assert "need an AGOP file" in page.locator("#methods").inner_text()
        names = [box.get_attribute("name") for box in page.locator("#methods input[type=checkbox]").all()]
        assert "vanilla" in names
        assert not {"agop-weighted", "agop-global"} & set(names)
        drop(page, IMAGES[0])
        wait_for_cards(page, 1)
        assert "L-1.png is predicted to be ell" in page.locator(".agop-card").inner_text()
        assert "a pixel’s share of its map" in page.locator(".agop-card").inner_text()
        page.get_by_role("button", name="Colours of the maps").click()
        assert page.locator("#percentile input[type=number]").input_value() == "30"
        page.get_by_label("each map on its own scale").check()
        page.locator("#explain").click()
        page.get_by_text("relative to its map’s top value").wait_for()
        page.context.close()  # before the server ends: a page reports lost connections as errors


# Without a browser


def test_other_sites_and_other_files_are_rejected(server):
    host = urlsplit(server).netloc
    assert status(f"{server}/", Origin=server) == 200
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9999", "file://", f"http://localhost:{host[-4:]}"):
        for path in ("/", "/gradio_api/queue/join", "/gradio_api/upload"):
            assert status(f"{server}{path}", b"{}", Origin=origin) == 403, (origin, path)
    for name in ("evil.example", "127.0.0.1.evil.example:7860", "192.168.1.5:7860", "[bad", " "):
        for path in ("/", "/gradio_api/upload"):
            assert status(f"{server}{path}", Host=name) == 400, (name, path)
            assert status(f"{server}{path}", Host=name, Origin=f"http://{name}") == 400, (name, path)
    for file in ("/etc/hostname", WEIGHTS):
        assert status(f"{server}/gradio_api/file={file}") == 403


def test_loopback_names_get_the_page_with_security_headers(server):
    port = urlsplit(server).port
    for host in (f"localhost:{port}", f"[::1]:{port}", "localhost"):
        request = urllib.request.Request(server, headers={"Host": host, "Origin": f"http://{host}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy


def test_upload_above_the_limit_is_rejected(server):
    assert upload(server, ("a.png", bytes(MOST_BYTES + 1)))[0] == 413


def test_request_can_name_uploaded_files_only(server, tmp_path):
    path = tmp_path / "private.png"
    path.write_bytes(IMAGES[0].read_bytes())
    for name in (str(path), "/etc/hostname", f"{server}/favicon.ico"):
        answer = explain(server, [name], explain_event(server))
        assert not answer["success"]
        assert "agop-" not in json.dumps(answer["output"])


def test_public_address_warns_and_rejects_other_sites(tmp_path):
    with serving(tmp_path, "--host", "0.0.0.0") as (address, _):
        assert "everybody who can reach 0.0.0.0 can upload images" in (tmp_path / "errors").read_text()
        local = address.replace("0.0.0.0", "127.0.0.1")
        assert status(f"{local}/") == 200
        assert status(f"{local}/gradio_api/queue/join", b"{}", Origin="http://evil.example") == 403
        assert status(f"{local}/gradio_api/file=/etc/hostname") == 403


def test_sigterm_ends_the_server_and_removes_its_files(browser, tmp_path):
    """With an open page, and uploaded files."""
    with serving(tmp_path) as (address, process):
        page = browser.new_page()
        page.goto(address)
        page.locator("#examples button").first.click(timeout=WAIT)
        page.wait_for_selector(".agop-card", timeout=WAIT)
        [folder] = (tmp_path / "temporary").glob("agop-app-*")
        assert any(folder.iterdir())
        end(process, signal.SIGTERM, tmp_path)
        page.close()
    assert (tmp_path / "errors").read_text() == ""


BLOCKING = """
import threading, torch

class Blocking(torch.nn.Linear):
    def __init__(self):
        super().__init__(64, 2)

    def forward(self, x):
        if x.any():
            threading.Event().wait()
        return super().forward(x.flatten(1))
"""


def test_running_model_does_not_delay_the_end(browser, tmp_path):
    (tmp_path / "blocking.py").write_text(BLOCKING)
    with serving(tmp_path, "blocking:Blocking", "--size", "8", "--gray") as (address, process):
        page = browser.new_page()
        page.goto(address)
        drop(page, IMAGES[0])
        page.get_by_text("image 1 of 1").first.wait_for(timeout=WAIT)
        end(process, signal.SIGINT, tmp_path)
        page.close()
    assert all(line.startswith("warning: ") for line in (tmp_path / "errors").read_text().splitlines())


def test_uploads_and_downloads_are_removed_after_a_while(tmp_path):
    """The example images stay."""
    with serving(tmp_path, before="import agop.app.page as page; page._KEPT, page._LOOK = 10, 1") as (address, _):
        [folder] = (tmp_path / "temporary").glob("agop-app-*")
        code, paths = upload(address, ("mine.png", IMAGES[0].read_bytes()))
        assert code == 200
        answer = explain(address, json.loads(paths), explain_event(address))["output"]["data"]
        assert "agop-card" in answer[0]
        assert files_in(folder) >= {"mine.png", "explanations.zip"}
        # Gradio leaves an empty file without a name.
        wait_until(lambda: files_in(folder) == {path.name for path in IMAGES}, seconds=60)


def files_in(folder):
    """Names of the files that aren't empty."""
    return {path.name for path in folder.rglob("*") if path.is_file() and path.stat().st_size}
