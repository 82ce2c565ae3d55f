"""Look at the findings of `agop audit` in FiftyOne: the pictures with their scores and heat maps.

    agop audit MODEL data/ --out audit/
    python examples/with_fiftyone.py audit/

Run it in the folder in which `agop audit` ran: the pictures' paths are relative to it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def entries_by_picture(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The entries of pictures.jsonl by picture: one for each finding about the picture's class."""
    entries: dict[str, list[dict[str, Any]]] = {}
    for line in (folder / "pictures.jsonl").read_text().splitlines():
        entry = json.loads(line)
        entries.setdefault(entry["picture"], []).append(entry)
    missing = [picture for picture in entries if not Path(picture).is_file()]
    if missing:
        sys.exit(f"{missing[0]} is not a file: audit a folder of images, and run this where `agop audit` ran")
    return entries


def dataset_of(fo: Any, folder: Path) -> Any:
    """A FiftyOne dataset with a heat map, a score and a tag for each finding."""
    samples = []
    for picture, entries in entries_by_picture(folder).items():
        sample = fo.Sample(filepath=str(Path(picture).absolute()))
        sample["ground_truth"] = fo.Classification(label=entries[0]["class"])
        for entry in entries:
            name = f"finding{entry['finding']}"
            sample[name] = fo.Heatmap(map_path=str((folder / entry["heatmap"]).absolute()))
            sample[f"{name}_score"] = entry["score"]
            if entry["contains"]:
                sample.tags.append(f"contains {name}")
        samples.append(sample)
    dataset = fo.Dataset()
    dataset.add_samples(samples)
    return dataset


def main() -> None:
    try:
        import fiftyone as fo
    except ImportError:
        sys.exit("this example needs FiftyOne: pip install fiftyone")
    fo.launch_app(dataset_of(fo, Path(sys.argv[1] if len(sys.argv) > 1 else "audit"))).wait()


if __name__ == "__main__":
    main()
