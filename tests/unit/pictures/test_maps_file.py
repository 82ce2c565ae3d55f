"""The file of maps: written in parts, read by safetensors."""

import torch
from safetensors.torch import load_file, save

from agop.pictures.maps_file import MapsFile


def test_file_equals_the_one_of_all_maps_at_once(tmp_path):
    maps = {name: torch.rand(5, 3, 4) for name in ("vanilla", "integrated-gradients:steps=3", "captum:Ä")}
    file = MapsFile(tmp_path / "out" / "maps.safetensors", list(maps))
    for row in range(5):
        file.add({name: batch[row] for name, batch in maps.items()})
    assert list((tmp_path / "out").iterdir()) == []
    file.write()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["maps.safetensors"]
    torch.testing.assert_close(load_file(tmp_path / "out" / "maps.safetensors"), maps, rtol=0, atol=0)
    assert len((tmp_path / "out" / "maps.safetensors").read_bytes()) < len(save(maps)) + 64


def test_maps_of_one_image_and_of_other_types(tmp_path):
    file = MapsFile(tmp_path / "maps.safetensors", ["a"])
    file.add({"a": torch.arange(6, dtype=torch.float64).reshape(3, 2).T})
    file.write()
    assert load_file(tmp_path / "maps.safetensors")["a"].tolist() == [[[0, 2, 4], [1, 3, 5]]]
