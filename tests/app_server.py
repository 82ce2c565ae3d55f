"""A running `agop app`, and users of it without a browser."""

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from contextlib import contextmanager

import httpx

COLOURING = ("own", 98, 1, "inferno")


@contextmanager
def serving(folder, *arguments, before=""):
    """A running `agop app`: its address and its process. Its temporary files are below the folder.

    `before` is code that the server runs first.
    """
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    code = f"{before}\nfrom agop.cli.main import main\nmain()"
    command = [sys.executable, "-c", code, "app", "--port", "0", *map(str, arguments)]
    options = {"cwd": folder, "text": True, "env": os.environ | {"TMPDIR": str(temporary)}}
    with (
        (folder / "errors").open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, **options) as process,
    ):
        try:
            address = next((match for line in process.stdout if (match := re.search(r"http://\S+", line))), None)
            assert address, (folder / "errors").read_text()
            yield address.group(), process
        finally:
            if process.poll() is None:
                process.kill()


def status(address, data=None, **headers):
    """HTTP status of the answer."""
    request = urllib.request.Request(address, data, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def upload(address, *files):
    """Upload files, each a name and bytes. Status and text of the answer: a JSON list of paths, or an error."""
    sent = [("files", (name, content, "image/png")) for name, content in files]
    answer = httpx.post(f"{address}/gradio_api/upload", files=sent, timeout=120)
    return answer.status_code, answer.text


def explain_event(address):
    """Id of the page's event that explains images."""
    with urllib.request.urlopen(f"{address}/config", timeout=120) as answer:
        return next(event["id"] for event in json.load(answer)["dependencies"] if len(event["inputs"]) == 6)


def explain(address, paths, event, methods=("vanilla",)):
    """The server's answer to a request that explains files by their paths on the server."""
    session = uuid.uuid4().hex
    data = [[{"path": path, "meta": {"_type": "gradio.FileData"}} for path in paths], list(methods), *COLOURING]
    body = json.dumps({"data": data, "fn_index": event, "session_hash": session}).encode()
    assert status(f"{address}/gradio_api/queue/join", body) == 200
    with urllib.request.urlopen(f"{address}/gradio_api/queue/data?session_hash={session}", timeout=300) as stream:
        lines = (json.loads(line.removeprefix(b"data: ")) for line in stream if line.startswith(b"data: "))
        return next(line for line in lines if line["msg"] == "process_completed")
