"""What is released: the files in wheel and sdist, and the wheel in an empty environment of every Python we claim.

`make release-check` runs all of it. It needs the `[release]` extra and a package index. `.ci/run` leaves out what is
marked `large`: the demo on the Pythons for which pip finds only CUDA builds of torch.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from _pytest.mark import ParameterSet

import quietnn
from quietnn import records
from quietnn.reports.runs import read_run

pytestmark = pytest.mark.release

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSIONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"

DATA = {
    "py.typed": {".typed"},
    "configs": {".toml"},
    "reports/page/assets": {".js", ".css", ".html"},
    "tasks/data": {".safetensors"},
}
"""Where the package has files that are not Python, and of which kinds."""


def run(*command: object, **options: object) -> str:
    """What a command prints; a command that fails shows all of it."""
    ended = subprocess.run(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    assert ended.returncode == 0, f"{command} gave {ended.returncode}:\n{ended.stdout}"
    return ended.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT)
    return out


def wheel_in(folder: Path) -> Path:
    (wheel,) = folder.glob("*.whl")
    return wheel


def source_files() -> set[str]:
    """Every file of the package, as named from the folder that holds it."""
    package = ROOT / "src" / "quietnn"
    files = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(package.parent).as_posix() for path in files}


def test_both_are_fit_for_an_index(built: Path) -> None:
    assert sorted(path.name for path in built.iterdir()) == [
        f"quietnn-{quietnn.__version__}-py3-none-any.whl",
        f"quietnn-{quietnn.__version__}.tar.gz",
    ]
    assert run(sys.executable, "-m", "twine", "check", "--strict", *built.iterdir()).count("PASSED") == 2


def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    names = set(zipfile.ZipFile(wheel_in(built)).namelist())
    about = f"quietnn-{quietnn.__version__}.dist-info"
    expected = {f"{about}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")}
    assert names == source_files() | expected
    told = zipfile.ZipFile(wheel_in(built)).read(f"{about}/METADATA").decode()
    assert "ten-minute tour" in told
    assert re.findall(r"\]\((?!https?:)", told) == [], "a link into the repository is dead on a package index"
    assert wheel_in(built).stat().st_size < 2_000_000


def test_what_is_not_python_is_data_that_the_package_reads() -> None:
    for name in source_files():
        path = PurePosixPath(name).relative_to("quietnn")
        kinds = DATA.get(str(path), DATA.get(str(path.parent), {".py"})) | {".py"}
        assert path.suffix in kinds, f"{name}: what is it for in the wheel?"


def test_the_sdist_holds_what_the_wheel_is_built_from(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    top = f"quietnn-{quietnn.__version__}/"
    with tarfile.open(sdist) as archive:
        names = {member.name.removeprefix(top) for member in archive.getmembers() if member.isfile()}
    beside = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "PKG-INFO", "README.md", "constraints.txt", "pyproject.toml"}
    assert names == {f"src/{name}" for name in source_files()} | beside | {".gitignore"}


def large_but_here(version: str) -> ParameterSet:
    """A Python with torch in it: on Linux a download of gigabytes, but for the Python that runs the tests.

    That one has its torch from the same index or folder, so that pip has it at hand, and often it is the small build.
    """
    return pytest.param(version, marks=() if version == HERE else pytest.mark.large)


def find_python(version: str) -> str:
    """A Python of this version: on the path, or one of pyenv's; the test is skipped where there is none."""
    of_pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for found in (shutil.which(f"python{version}"), *map(str, reversed(of_pyenv))):
        if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
            return found
    pytest.skip(f"there is no Python {version} on this machine")


@pytest.fixture(scope="module")
def empty(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The Python of an empty environment, in a folder that is not the repository; it goes when its tests are done."""
    folder = tmp_path_factory.mktemp(f"python{request.param}")
    run(find_python(request.param), "-m", "venv", "--without-pip", folder / "env")
    yield folder / "env" / "bin" / "python"
    shutil.rmtree(folder)


def outside() -> dict[str, str]:
    """The environment without what would find quietnn in the repository; bytecode is kept from command to command."""
    without = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if name not in without}


def install(python: Path, *what: object) -> None:
    """What pip of this environment puts into that one. Only what is imported is compiled, when it is."""
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile", "--only-binary=:all:")
    run(*pip, "-c", ROOT / "constraints.txt", *what, cwd=python.parent, env=outside())


@pytest.mark.parametrize("empty", VERSIONS, indirect=True, scope="module")
def test_what_needs_no_torch_runs_without_it(built: Path, empty: Path, tmp_path: Path) -> None:
    """Every module compiles; the command line, the configurations, the theory and reports of a run work."""
    install(empty, *(name for name in PROJECT["dependencies"] if not name.startswith("torch")))
    install(empty, "--no-deps", wheel_in(built))
    (package,) = empty.parents[1].glob("lib/python*/site-packages/quietnn")
    version = package.parents[1].name.removeprefix("python")
    run(empty, "-W", "error", "-m", "compileall", "-q", "-f", package)
    said = run(empty, "-c", "import quietnn; print(quietnn.__version__, quietnn.__file__)", cwd=tmp_path, env=outside())
    assert said.startswith(f"{quietnn.__version__} {package}")
    command = empty.parent / "quietnn"
    assert "sweep" in run(command, "configs", cwd=tmp_path, env=outside())
    assert "repair" in run(command, "--help", cwd=tmp_path, env=outside())
    if version == HERE:  # once is enough: it is arithmetic, and its figures take a quarter of a minute
        assert "Theorem 1" in run(command, "theory", "--samples", "1000", cwd=tmp_path, env=outside())
    records.append(tmp_path / "run" / "records.jsonl", read_run(ROOT / "results" / "digits").records)
    assert "Posterior" in run(command, "analyze", "run", cwd=tmp_path, env=outside())
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.parametrize("empty", [large_but_here(version) for version in VERSIONS], indirect=True, scope="module")
def test_the_demo_runs_from_another_folder(built: Path, empty: Path, tmp_path: Path) -> None:
    """With the torch that pip finds, whatever its size."""
    install(empty, wheel_in(built))
    told = run(empty.parent / "quietnn", "demo", cwd=tmp_path, env=outside())
    assert "Posterior" in told
    assert (tmp_path / "quietnn-demo" / "report.html").stat().st_size > 10_000
