"""Configurations say what is wrong with them, and nothing runs until they are right."""

import math
import re
import tomllib
from pathlib import Path

import pytest

from quietnn.errors import InvalidConfig, MissingData, QuietnnError
from quietnn.experiments.config import find_config, from_mapping, load_config, shipped_configs, to_mapping
from quietnn.experiments.noisy_inference import NoisyInference

GOOD = 'name = "x"\ntask = "digits"\nwnr_db = [0, 2.5]\nmethods = ["ml"]\n'
ALL_CONFIGS = list(shipped_configs().values())
CONFIGS = [path for path in ALL_CONFIGS if not path.stem.startswith("federated-")]


def write(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text)
    return path


def test_values_reach_their_fields_with_their_types(tmp_path: Path) -> None:
    config = load_config(NoisyInference, write(tmp_path, GOOD))
    assert config.wnr_db == (0.0, 2.5)
    assert all(isinstance(value, float) for value in config.wnr_db)
    assert from_mapping(NoisyInference, to_mapping(config), source="itself") == config


def test_presets_and_overrides_replace_keys_in_that_order(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + "num_draws = 2\n[presets.paper]\nnum_draws = 20\nseed = 7\n")
    assert load_config(NoisyInference, path).num_draws == 2
    paper = load_config(NoisyInference, path, preset="paper", overrides=["seed=8", "wnr_db=[inf]"])
    assert (paper.num_draws, paper.seed, paper.wnr_db) == (20, 8, (math.inf,))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD + "num_drawz = 3", "did you mean 'num_draws'"),
        (GOOD.replace("wnr_db", "wnrdb"), "did you mean 'wnr_db'"),
        (GOOD.replace('"ml"', '"mmsepb"'), "did you mean 'mmse_pb'"),
        (GOOD.replace("[0, 2.5]", "0"), "square brackets"),
        (GOOD.replace("[0, 2.5]", '["a"]'), "give a float"),
        (GOOD.replace("[0, 2.5]", "[nan]"), "nan"),
        (GOOD.replace("[0, 2.5]", "[]"), "at least one"),
        (GOOD + "num_draws = true", "give a int"),
        (GOOD + "num_draws = 0", "1 or more"),
        (GOOD + 'search = "resnets"', "did you mean 'resnet'"),
        (GOOD + 'criterion = "los"', "did you mean 'loss'"),
        (GOOD.replace('"ml"', '"mmse_pb_reused"'), "reuse_wnr_db"),
        ("name = ", "not valid TOML"),
        ('task = "digits"', "'name' is missing"),
    ],
)
def test_a_bad_configuration_names_the_key_and_the_remedy(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(QuietnnError, match=re.escape(words)):
        load_config(NoisyInference, write(tmp_path, text))


def test_a_missing_file_or_preset_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"nowhere\.toml"):
        load_config(NoisyInference, tmp_path / "nowhere.toml")
    with pytest.raises(InvalidConfig, match="did you mean 'laptop'"):
        load_config(NoisyInference, write(tmp_path, GOOD + "[presets.laptop]\nseed = 1"), preset="labtop")


def test_a_ready_made_configuration_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = shipped_configs()["resnet20"]
    for name in ("resnet20", "resnet20.toml", "configs/resnet20", "configs/resnet20.toml"):
        assert find_config(Path(name)) == shipped
    (tmp_path / "resnet20").mkdir()
    assert find_config(Path("resnet20")) == shipped, "a run's folder is no configuration"
    write(tmp_path, GOOD).rename(tmp_path / "resnet20.toml")
    assert find_config(Path("resnet20.toml")) == Path("resnet20.toml"), "a file of the user's comes first"
    with pytest.raises(MissingData, match=r"did you mean 'resnet20'\? quietnn configs lists"):
        find_config(Path("configs/resnet2.toml"))
    with pytest.raises(MissingData):
        find_config(tmp_path / "elsewhere" / "resnet20.toml")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_configuration_is_valid_with_each_of_its_presets(path: Path) -> None:
    presets = tomllib.loads(path.read_text()).get("presets", {})
    for preset in [None, *presets]:
        load_config(NoisyInference, path, preset=preset)


def test_the_digest_changes_with_what_decides_a_value_only(tmp_path: Path) -> None:
    config = load_config(NoisyInference, write(tmp_path, GOOD))
    more = load_config(NoisyInference, write(tmp_path, GOOD), overrides=["num_draws=9", 'methods=["ml", "mmse"]'])
    other = load_config(NoisyInference, write(tmp_path, GOOD), overrides=["num_tuning_examples=10"])
    assert config.digest == more.digest != other.digest
    elsewhere = load_config(NoisyInference, write(tmp_path, GOOD), overrides=["first_test_position=10"])
    natural = load_config(NoisyInference, write(tmp_path, GOOD), overrides=["search=natural"])
    assert len({config.digest, elsewhere.digest, natural.digest}) == 3


@pytest.mark.parametrize(
    "network", ["fig8a-resnet34", "fig8b-resnet18", "resnet20", "shufflenetv2-x0_5", "sst2-minilm"]
)
def test_the_natural_presets_test_on_examples_that_chose_nothing(network: str) -> None:
    path = next(path for path in CONFIGS if path.stem == network)
    config = load_config(NoisyInference, path, preset="natural")
    last = config.first_test_position + (config.num_test_examples or 0) - 1
    first, limit = (600, 1820) if network == "sst2-minilm" else (1000, 4999)
    assert (config.search, config.first_test_position) == ("natural", first)
    assert last <= limit
    assert 2000 <= config.seed < config.seed + config.num_draws <= 9000


def test_an_override_may_leave_out_the_quotes_of_a_word_or_path(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    assert load_config(NoisyInference, path, overrides=["weights=results/a-b_c.safetensors"]).weights == (
        "results/a-b_c.safetensors"
    )
    for bad in ("weights=a b", "weights=[a", "weights=1a", "wnr_db=five"):
        with pytest.raises(InvalidConfig):
            load_config(NoisyInference, path, overrides=[bad])
