"""The README's promises: its Python runs as printed, and its files exist."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_snippets_run_one_after_another() -> None:
    namespace: dict[str, object] = {}
    snippets = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(snippets) >= 2
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), namespace)


def test_the_first_snippet_repairs_what_it_says_it_repairs() -> None:
    namespace: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)[0], namespace)
    task = namespace["task"]
    networks = namespace["observation"].received, namespace["repaired"].model
    before, after = (task.evaluate(network, task.test_examples(None)).accuracy for network in networks)
    assert f"from {100 * before:.0f} % to {100 * after:.0f} %" in README


def test_every_file_it_names_exists() -> None:
    named = re.findall(r"\]\(([^)#]+)\)", README) + re.findall(r"configs/[\w.-]+\.toml", README)
    places = (ROOT, ROOT / "src" / "quietnn")  # a configuration is found wherever one is
    missing = [name for name in named if not name.startswith("http") and not any((at / name).exists() for at in places)]
    assert not missing


def test_it_is_short_enough_to_be_read() -> None:
    assert README.count("\n") <= 120
