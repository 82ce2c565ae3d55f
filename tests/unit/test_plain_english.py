"""Phrases that readers stumbled over stay out of code, tests and docs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "docs", "examples", "benchmarks")
FILES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", ".ci/run", "pyproject.toml")
SUFFIXES = {".py", ".md", ".html", ".js", ".css"}
SKIPPED = {".venv", "runs", "demo", "__pycache__"}

COMPARATIVES = "longer|more|less|other|different|better|worse|larger|smaller|faster|slower|higher|lower|finer"
# Regular expression → plain replacement. A space also matches a line break.
PHRASES = {
    r"(?<![a-z])told(?![a-z])": "reported, printed; as a name: what the variable holds",
    r"\banew\b": "again",
    r"\b(?:go|goes|going|gone|went) on (?:with|from)\b": "resume, continue",
    r"\brun again to go on\b": "run again to resume",
    r"(?-i:(?<!there )\bare none\b|\bthat is none\b)": "aren't, isn't",
    rf"(?<!there )\b(?:is|are) no (?!(?:{COMPARATIVES})\b)\w": "isn't a, aren't",
    r"\bstands? (?:still|twice|beside|before|behind|between|among|side|there|in|by)\b": "is, appears, is fixed",
    r"\bwhere (?:\w+ ){1,3}stands?\b(?! for)": "where … is",
    r"\bby way of\b": "through, by",
    r"\b(?:one|somebody|someone)'s own\b": "your own",
    r"\bof yours\b": "your",
    r"\byours to (?:say|give|choose)\b": "you must set",
    r"\b(?:say|says|said) plainly\b": "clear error",
    r"\bknows? nothing\b": "is independent of, model-independent",
    r", too(?=[.,;:!?)\"'|\n]| \(|$)": "also",
    r"\b(?:first|every|with|those|at most|after|of) so many\b": "the number's name: `count`, N",
    r"\b(?:was|were|a) begun\b": "started, unfinished",
    r"\bif nobody says\b": "by default",
    r"\bleft out\b": "skipped, omitted",
    r"\b(?:is|was) there and (?:is|holds)\b": "already exists and isn't, contains",
    r"\b(?:is|was|were) cut short\b": "truncated",
    r"\bat work\b": "running, in progress",
    r"\bone an? (?:picture|image|sample|line|core|batch|call|pass|model|machine|rank|class|channel|epoch|step)\b": (
        "one per"
    ),
    r"\bonce an? \w+(?=[.,;:)\"])": "once per",
    r"\bwithout a word\b": "silently",
    r"\b(?:cannot|to) be had\b": "isn't available, can't be loaded",
    r"\bfor want of\b": "without, instead of",
    r"\bheld still\b": "left unchanged",
}
PATTERNS = {re.compile(phrase.replace(" ", r"\s"), re.IGNORECASE): plain for phrase, plain in PHRASES.items()}


def text_files() -> list[Path]:
    inside = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)
    paths = [path for path in inside if not SKIPPED & set(path.relative_to(ROOT).parts)]
    return sorted({*paths, *(ROOT / name for name in FILES)} - {Path(__file__)})


def complaints(text: str) -> list[str]:
    """Line, phrase and replacement of every match, also of phrases that are split over two lines."""
    joined = "\n".join(re.sub(r"^\s*(?:#|//|\*)?\s*", "", line) for line in text.splitlines())
    matches = [(match, plain) for pattern, plain in PATTERNS.items() for match in pattern.finditer(joined)]
    return [
        f"line {joined.count(chr(10), 0, match.start()) + 1}: {' '.join(match[0].split())!r}: write {plain}"
        for match, plain in sorted(matches, key=lambda pair: pair[0].start())
    ]


@pytest.mark.parametrize("path", text_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_file_is_written_in_plain_english(path):
    problems = complaints(path.read_text())
    assert not problems, "\n".join(["", *(f"{path.relative_to(ROOT)}, {problem}" for problem in problems)])


@pytest.mark.parametrize(
    "text",
    [
        "options are told now", "_TOLD = 3", "def _told(): ...", "make it anew", "a run that is gone\n    # on with",
        "files that are none", "{path} is no folder", "the masks of where objects stand", "a guard stands before it",
        "it is also closed, too.", "by rank, too (Rank)", "the first so many samples", "processes, one a core",
        "call it once a batch, please", "a method of one's own", "maps that know nothing of the model",
    ],
)  # fmt: skip
def test_dialect_is_found(text):
    assert complaints(text)


@pytest.mark.parametrize(
    "text",
    [
        "the name stands for a class", "it stands on the floor",
        "a standard way to understand", "there is no mask", "if there\n    is no mask",
        "this is no longer needed", "it scores no better and is no better", "if there are none, raise",
        "None if both are None", "images are too large, too many or empty", "once a batch is complete",
        "the token `untold` and the name gold_toldo",
    ],
)  # fmt: skip
def test_ordinary_english_is_accepted(text):
    assert not complaints(text)
