"""`agop data clevr-xai`: where to get the release, and whether a folder holds one."""

from agop.scenarios.clevr.release.samples import read_release
from tests.clevr import write_official
from tests.command import error_of, run_checked


def test_without_a_folder_it_prints_where_to_get_the_files(tmp_path):
    page = run_checked("data", "clevr-xai", folder=tmp_path).stdout
    for words in ("CLEVR-XAI_v1.0.zip", "CLEVR-XAI_v1.0_images_masks.zip", "/releases", "agop bench clevr-xai --data"):
        assert words in page


def test_with_a_folder_it_prints_the_summary_of_the_release_or_an_error(tmp_path):
    assert "download CLEVR-XAI_v1.0.zip" in error_of("data", "clevr-xai", tmp_path, folder=tmp_path)
    write_official(tmp_path / "release")
    result = run_checked("data", "clevr-xai", "release", folder=tmp_path)
    assert read_release(tmp_path / "release").summary() in result.stdout
